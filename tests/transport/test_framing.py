"""Frames over a real socket pair: round trips of every size, and bytes that are no frame."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import within

from rlmesh.errors import ProtocolException
from rlmesh.transport.framing import (
    FrameKind,
    FrameSocket,
    FrameTooLarge,
    encode_frame,
    encode_plain_frame,
    frame_size,
    parse_frame,
)

PREFIX = struct.Struct("<IHHQ")


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    with one, other:
        yield one, other


@contextmanager
def unix_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def frame_bytes(kind: int, header: bytes, leaves: Any = ()) -> bytes:
    return b"".join(bytes(part) for part in encode_frame(kind, header, leaves)[0])


@contextmanager
def writing(sock: socket.socket, *pieces: bytes, hang_up: bool = True) -> Iterator[None]:
    """Write from a thread of its own, as the pieces may be larger than the socket's buffer."""

    def write() -> None:
        try:
            for piece in pieces:
                sock.sendall(piece)
            if hang_up:
                sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the reader has had enough

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        sock.shutdown(socket.SHUT_RDWR)
        thread.join(20.0)
        assert not thread.is_alive()


# Round trips

AROUND_THE_THRESHOLDS = (
    [0, 1, 7, 8, 15, 16, 17, 100, 255, 256, 257]
    + [4096 + d for d in (-300, -17, -16, -1, 0, 1, 16)]
    + [16 * 1024 + d for d in (-64, -33, -32, -17, -16, -1, 0, 1, 16, 300)]
    + [256 * 1024 + d for d in (-1, 0, 1)]
    + [1_000_003]
)

frames = st.lists(
    st.tuples(
        st.integers(0, 0xFFFF),
        st.integers(0, 300) | st.sampled_from([4080, 16 * 1024 - 20]),
        st.lists(st.sampled_from(AROUND_THE_THRESHOLDS), max_size=6)
        | st.lists(st.integers(0, 40), min_size=60, max_size=70)
        | st.lists(st.integers(0, 3), min_size=510, max_size=520),
    ),
    min_size=1,
    max_size=4,
)


def build(
    kind: int, header: int, sizes: list[int]
) -> tuple[int, bytes, list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(header * 1000 + len(sizes))
    leaves = [rng.integers(0, 256, size, np.uint8) for size in sizes]
    return kind, rng.bytes(header), leaves


@pytest.mark.parametrize("pair", [unix_pair, tcp_pair])
@settings(max_examples=60, deadline=None)
@given(plan=frames)
@example(plan=[(2, 10, [])])
@example(plan=[(2, 10, [3] * 65), (2, 10, [3] * 63), (2, 0, [0])])
@example(plan=[(2, 10, [0, 0, 17000, 0])])
@example(plan=[(2, 10, [0, 100, 0] * 300)])  # more buffers than one sendmsg takes
@example(plan=[(2, 10, [2_800_000, 5]), (2, 10, [5]), (2, 10, [2_800_000])])
def test_what_is_sent_arrives_as_writable_aligned_leaves(
    pair: Any, plan: list[tuple[int, int, list[int]]]
) -> None:
    sent = [build(*one) for one in plan]
    with pair() as (left, right):
        sender, receiver = FrameSocket(left), FrameSocket(right)
        for frames_socket in (sender, receiver):
            frames_socket.set_timeout(20.0)

        def send_all() -> None:
            for one in sent:
                sender.send(*one)

        thread = threading.Thread(target=send_all)
        thread.start()
        for kind, header, leaves in sent:
            got_kind, got_header, got = receiver.recv()
            assert (got_kind, got_header) == (kind, header)
            assert [bytes(leaf) for leaf in got] == [leaf.tobytes() for leaf in leaves]
            for leaf in got:
                assert not leaf.readonly
                if leaf.nbytes:
                    assert np.frombuffer(leaf, np.uint8).ctypes.data % 8 == 0
        thread.join(20.0)
        assert not thread.is_alive()


@settings(max_examples=60, deadline=None)
@given(plan=frames, cut=st.integers(0, 70_000))
@example(plan=[(2, 10, [100])] * 4, cut=0)
@example(plan=[(2, 10, [20_000])] + [(2, 10, [10])] * 3, cut=70_000)
def test_frames_that_arrive_together_are_told_apart(
    plan: list[tuple[int, int, list[int]]], cut: int
) -> None:
    """However the bytes are cut: some were read before (as the acceptor does), the rest follows."""
    sent = [build(*one) for one in plan]
    data = b"".join(frame_bytes(*one) for one in sent)
    with unix_pair() as (left, right):
        receiver = FrameSocket(right, pending=data[:cut])
        receiver.set_timeout(20.0)
        with writing(left, data[cut:]):
            for kind, header, leaves in sent:
                got_kind, got_header, got = receiver.recv()
                assert (got_kind, got_header) == (kind, header)
                assert [bytes(leaf) for leaf in got] == [leaf.tobytes() for leaf in leaves]
            with pytest.raises(ConnectionError, match="closed by the peer"):
                receiver.recv()


@settings(max_examples=60, deadline=None)
@given(plan=frames, cuts=st.lists(st.integers(0, 70_000), max_size=6))
@example(plan=[(2, 10, [100])] * 4, cuts=[1, 2, 16, 17])
@example(plan=[(2, 10, [1_000_003, 0])], cuts=[])
def test_a_thread_of_many_sockets_takes_frames_as_they_come(
    plan: list[tuple[int, int, list[int]]], cuts: list[int]
) -> None:
    """poll() never waits, and loses nothing of what has come so far."""
    sent = [build(*one) for one in plan]
    data = b"".join(frame_bytes(*one) for one in sent)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    got: list[Any] = []
    with unix_pair() as (left, right):
        receiver = FrameSocket(right, pending=data[: edges[1]])
        with writing(left, *(data[a:b] for a, b in pairwise(edges[1:]))):
            while len(got) < len(sent):
                frame = receiver.poll()
                if frame is None:
                    assert not receiver.buffered
                    assert select.select([right], [], [], 20.0)[0], "nothing more comes"
                else:
                    got.append(frame)
            with pytest.raises(ConnectionError, match="closed by the peer"):
                while receiver.poll() is None:
                    assert select.select([right], [], [], 20.0)[0], "nothing more comes"
    for (kind, header, leaves), (got_kind, got_header, got_leaves) in zip(sent, got, strict=True):
        assert (got_kind, got_header) == (kind, header)
        assert [bytes(leaf) for leaf in got_leaves] == [leaf.tobytes() for leaf in leaves]


def test_a_peer_that_sends_one_byte_at_a_time_is_understood() -> None:
    data = frame_bytes(FrameKind.JOIN, b"header", [np.arange(40, dtype=np.float32)])
    with tcp_pair() as (left, right), writing(left, *(data[i : i + 1] for i in range(len(data)))):
        receiver = FrameSocket(right)
        receiver.set_timeout(20.0)
        kind, header, (leaf,) = receiver.recv()
    assert (kind, header) == (FrameKind.JOIN, b"header")
    assert np.frombuffer(leaf, np.float32).tolist() == list(range(40))


@settings(max_examples=100)
@given(
    kind=st.integers(0, 0xFFFF),
    header=st.binary(max_size=100),
    more=st.binary(max_size=50),
)
def test_a_plain_frame_is_parsed_from_a_buffer_that_holds_more(
    kind: int, header: bytes, more: bytes
) -> None:
    whole = encode_plain_frame(kind, header)
    parsed = parse_frame(bytearray(whole + more), limit=1000)
    assert parsed is not None
    frame, size = parsed
    assert (frame.kind, frame.header, frame.leaves, size) == (kind, header, [], len(whole))
    assert frame_size(whole + more) == len(whole)
    for cut in range(len(whole)):
        assert parse_frame(whole[:cut], limit=1000) is None


# Hostile bytes


def raw_prefix(header: int, kind: int, count: int, body: int) -> bytes:
    return PREFIX.pack(header, kind, count, body)


hostile = st.one_of(
    st.binary(max_size=400),
    st.builds(
        lambda head, kind, count, body, tail: raw_prefix(head, kind, count, body) + tail,
        st.integers(0, 2**32 - 1) | st.integers(0, 64),
        st.integers(0, 2**16 - 1) | st.integers(0, 5),
        st.integers(0, 2**16 - 1) | st.integers(0, 4),
        st.integers(0, 2**64 - 1) | st.integers(0, 64) | st.just(2**63),
        st.binary(max_size=400),
    ),
    # A frame in good order, with a byte or two changed.
    st.builds(
        lambda sizes, at, value: _spoil(frame_bytes(*build(2, 9, sizes)), at, value),
        st.lists(st.integers(0, 30), max_size=5),
        st.integers(0, 200),
        st.integers(0, 255),
    ),
)


def _spoil(data: bytes, at: int, value: int) -> bytes:
    spoiled = bytearray(data)
    spoiled[at % len(spoiled)] = value
    return bytes(spoiled)


@settings(max_examples=400, deadline=None)
@given(data=hostile, limit=st.sampled_from([1000, 1 << 20, 1 << 28]))
@example(data=raw_prefix(2**32 - 1, 2, 2**16 - 1, 2**64 - 1), limit=1 << 28)
@example(data=raw_prefix(0, 2, 1, 2**63), limit=1 << 28)
@example(data=raw_prefix(0, 2, 1, (1 << 28) - 64), limit=1 << 28)
@example(data=raw_prefix(0, 2, 1, 16) + struct.pack("<Q", 2**64 - 1) + bytes(24), limit=1000)
@example(data=raw_prefix(0, 2, 2, 16) + struct.pack("<QQ", 2**64 - 16, 32) + bytes(16), limit=1000)
@pytest.mark.parametrize("take", ["recv", "poll"])
def test_hostile_bytes_are_an_error_and_never_a_hang(take: str, data: bytes, limit: int) -> None:
    with unix_pair() as (left, right):
        left.sendall(data)
        left.shutdown(socket.SHUT_WR)
        receiver = FrameSocket(right, limit=limit)
        receiver.set_timeout(20.0)
        with within(30.0), pytest.raises((ConnectionError, ProtocolException)):
            while True:  # valid frames may come first; the end is always an error
                _, header, leaves = getattr(receiver, take)()
                assert len(header) + sum(leaf.nbytes for leaf in leaves) <= len(data)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, (1 << 28) + 1])
def test_a_length_over_the_limit_takes_no_memory(length: int) -> None:
    import tracemalloc

    with unix_pair() as (left, right):
        left.sendall(raw_prefix(0, 2, 0, length))
        receiver = FrameSocket(right)
        tracemalloc.start()
        try:
            with pytest.raises(FrameTooLarge, match=r"over the limit of 268435456 bytes.*raise"):
                receiver.recv()
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("lengths", "body", "complaint"),
    [
        ([17], 16, "longer than the body"),
        ([2**64 - 1], 16, "longer than the body"),
        ([16, 16], 16, "longer than the body"),
        ([1], 32, "do not fill the body"),
        ([0, 0], 16, "do not fill the body"),
    ],
)
def test_a_wrong_leaf_table_is_refused(lengths: list[int], body: int, complaint: str) -> None:
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    head = raw_prefix(0, 2, len(lengths), body) + table
    with unix_pair() as (left, right):
        left.sendall(head + bytes(-len(head) % 16) + bytes(body))
        receiver = FrameSocket(right)
        receiver.set_timeout(20.0)
        with pytest.raises(ProtocolException, match=complaint):
            receiver.recv()


def test_leaves_of_every_shape_pass_through_a_send_that_takes_several_calls() -> None:
    """Over the first call's number of buffers, with shapes that a memoryview will not cast."""
    leaves = [np.full((20, 3), i, np.float32) for i in range(600)]
    leaves[::50] = [np.empty((0, 3), np.float32)] * 12
    leaves[1] = np.array(7.0)
    with unix_pair() as (left, right):
        sender, receiver = FrameSocket(left), FrameSocket(right)
        receiver.set_timeout(20.0)
        thread = threading.Thread(target=sender.send, args=(FrameKind.JOIN, b"header", leaves))
        thread.start()
        _, _, got = receiver.recv()
        thread.join(20.0)
    assert [bytes(leaf) for leaf in got] == [leaf.tobytes() for leaf in leaves]


@pytest.mark.parametrize("pair", [unix_pair, tcp_pair])
@pytest.mark.parametrize("cut", [0, 1, 15, 16, 30, 70, 60_000])
def test_a_truncated_frame_is_an_end_or_a_timeout(pair: Any, cut: int) -> None:
    data = frame_bytes(FrameKind.JOIN, b"header", [np.zeros(80_000, np.uint8)])[:cut]
    with pair() as (left, right):
        receiver = FrameSocket(right)
        receiver.set_timeout(0.05)
        left.sendall(data)
        with within(30.0), pytest.raises(TimeoutError, match=r"recv took more than 0\.05 s"):
            receiver.recv()
    with pair() as (left, right):
        receiver = FrameSocket(right)
        receiver.set_timeout(20.0)
        left.sendall(data)
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="closed by the peer"):
            receiver.recv()


@pytest.mark.parametrize("pair", [unix_pair, tcp_pair])
@pytest.mark.parametrize("size", [1_000, 50_000_000])
def test_sending_to_a_peer_that_reads_nothing_times_out(pair: Any, size: int) -> None:
    leaf = np.zeros(size, np.uint8)
    with pair() as (left, _right):
        sender = FrameSocket(left)
        sender.set_timeout(0.05)
        with within(30.0), pytest.raises(TimeoutError, match=r"send took more than 0\.05 s"):
            while True:
                sender.send(FrameKind.JOIN, b"", [leaf])


def test_a_frame_of_cameras_leaves_a_unix_socket_in_one_piece() -> None:
    """Before anybody reads of it; as far as the system allows so large a buffer."""
    allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
    with unix_pair() as (one, _):
        sender = FrameSocket(one)
        sender.set_timeout(2.0)
        sender.send(FrameKind.JOIN, b"", [np.zeros(min(2_760_000, allowed // 2), np.uint8)])


def test_a_message_over_the_limit_is_not_begun() -> None:
    with unix_pair() as (left, right):
        sender = FrameSocket(left, limit=1000)
        with pytest.raises(ValueError, match=r"message of 1056 bytes is over the limit of 1000"):
            sender.send(FrameKind.JOIN, b"1234567890123456", [np.zeros(1000, np.uint8)])
        sender.send(FrameKind.JOIN, b"small", ())
        assert FrameSocket(right).recv()[1] == b"small"


@pytest.mark.parametrize("seconds", [1e-9, 0.25, 3, 1e9, 1e300])
def test_any_number_of_seconds_is_a_timeout(seconds: float) -> None:
    with unix_pair() as (left, right):
        receiver = FrameSocket(right)
        receiver.set_timeout(seconds)
        left.sendall(encode_plain_frame(FrameKind.JOIN, b"here"))
        assert receiver.recv()[1] == b"here"
        if seconds < 1:
            with pytest.raises(TimeoutError):
                receiver.recv()
        receiver.set_timeout(None)
        left.sendall(encode_plain_frame(FrameKind.JOIN, b"again"))
        assert receiver.recv()[1] == b"again"
