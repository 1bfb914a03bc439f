"""Info maps: what arrives of the values simulators put there, and what becomes of the rest."""

from __future__ import annotations

import collections
import enum
import logging
from typing import Any

import grpc
import numpy as np
import pytest
from support import FunctionEnv, serving
from support.driving import driving
from support.trees import assert_same

from rlmesh import EnvironmentException
from rlmesh.numpy import RemoteEnv
from rlmesh.wire import messages
from rlmesh.wire.meta import decode_map

WARNING = "rlmesh.conformance.warning"


class Colour(enum.Enum):
    RED = 1
    ODD = object()


Point = collections.namedtuple("Point", "x y")


def telling(info: Any, reset_info: Any = None) -> FunctionEnv:
    """Return an env whose every step gives ``info``."""
    return FunctionEnv(
        step=lambda action: (np.zeros(4), 0.0, False, False, info),
        reset=lambda seed: (np.zeros(4), reset_info or {}),
    )


def told(info: Any) -> dict[str, Any]:
    """Return what arrives of a step's ``info``."""
    with driving(telling(info)) as remote:
        remote.reset()
        got = remote.step([0, 0])[4]
        del got["episode_ids"]
        return got


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (-(2**63), -(2**63)),
        (0.1, 0.1),
        (float("inf"), float("inf")),
        ("päth", "päth"),
        (b"\0\xff", b"\0\xff"),
        ([1, [2.5, None]], [1, [2.5, None]]),
        ((1, "a"), [1, "a"]),
        ({"a": {"b": []}}, {"a": {"b": []}}),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.uint64(2**63 - 1), 2**63 - 1),
        (np.str_("x"), "x"),
        (np.array(3.5), 3.5),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        (Colour.RED, 1),
        (Colour.ODD, "ODD"),
        (collections.OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (np.array(["a", None], object), ["a", None]),
        (np.array(["ab", "c"]), ["ab", "c"]),
    ],
    ids=repr,
)
def test_values_arrive_usable(value: Any, expected: Any) -> None:
    """MET-1, issue 2: numpy scalars are numbers, tuples lists, named tuples maps, enums values."""
    got = told({"k": value, "list": [value]})
    assert_same(got, {"k": expected, "list": [expected]})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.arange(6, dtype=">f4")[::2],
        np.array([True, False]),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_keep_dtype_and_shape(door: str, array: np.ndarray) -> None:
    """MET-1, issue 2: between our own ends an array stays one, writable and the caller's own.

    To a published client it is nested lists, as the wire has it.
    """
    native = array.astype(array.dtype.newbyteorder("="))
    got = told({"a": array, "deep": {"er": [array]}})
    assert_same(got, {"a": native, "deep": {"er": [native]}})
    got["a"][...] = 1
    assert not np.shares_memory(got["a"], got["deep"]["er"][0])


@pytest.mark.parametrize("hello", [b"", b"\xff\xff no message"], ids=["none", "junk"])
def test_clients_that_announce_nothing_get_lists(hello: bytes) -> None:
    """MET-1: a gRPC client says in its Join what it can take; a published one says nothing."""
    with serving(telling({}, {"a": np.arange(3)})) as server:
        channel = grpc.insecure_channel(server.address.removeprefix("tcp://"))
        join: Any = channel.stream_stream("/rlmesh.env.v1.EnvService/Join")
        request = messages.env.JoinRequest()
        request.reset.SetInParent()
        metadata = (("rlmesh-hello-bin", hello),) if hello else ()
        answers = join(iter([request.SerializeToString()]), metadata=metadata)
        answer = messages.env.JoinResponse.FromString(next(answers))
        assert decode_map(answer.reset.infos)["a"] == [0, 1, 2]
        channel.close()


def circular() -> Any:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        (2**63, str(2**63)),
        (1j, "complex"),
        (np.zeros(2, complex), "complex128"),
        (print, "builtin_function_or_method"),
        ("\ud800", "UTF-8"),
        (circular(), "contains itself"),
        (np.datetime64("2026-01-01"), "datetime64"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_what_cannot_travel_is_dropped_and_named_once(
    value: Any, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 2: dropped with one warning that names it; its siblings arrive, the session lives.

    In the published implementation such a value kills the session (MET-1).
    """
    caplog.set_level(logging.WARNING, logger="rlmesh")
    with serving(telling({"bad": value, "good": 1})) as server:
        with RemoteEnv(server.address) as remote:
            remote.reset()
            info = remote.step([0, 0])[4]
            assert (info["good"], "bad" in info) == (1, False)
            (note,) = info[WARNING]
            assert note["kind"] == "info_dropped" and note["path"].startswith("bad")
            assert word in note["detail"]
            for _ in range(2):
                info = remote.step([0, 0])[4]
                assert info["good"] == 1 and WARNING not in info
        assert len([m for m in caplog.messages if "bad" in m]) == 1
        with RemoteEnv(server.address) as remote:
            remote.reset()
            assert remote.step([0, 0])[4][WARNING] == [note]


def test_only_the_entry_that_cannot_travel_is_dropped() -> None:
    """Issue 2: inside maps, the siblings stay; a list goes whole."""
    got = told({"m": {"x": object(), "y": 1}, "l": [1, object()], 3: "k", "z": 0})
    notes = got.pop(WARNING)
    assert got == {"m": {"y": 1}, "z": 0}
    assert {note["path"] for note in notes} == {"m.x", "l[1]", "[3]"}


def test_reset_infos_travel_alike(door: str) -> None:
    """MET-1, CLI-5: the info of a reset obeys the same rules."""
    env = telling({}, reset_info={"a": np.float32(1), "bad": object()})
    with driving(env) as remote:
        info = remote.reset()[1]
        assert info["a"] == 1.0 and "bad" not in info
        assert [note["path"] for note in info[WARNING]] == ["bad"]
        assert WARNING not in remote.reset()[1]


def test_a_final_info_drops_without_a_word_more() -> None:
    """The last step's info travels twice; it is warned of once."""
    env = FunctionEnv(step=lambda a: (np.zeros(4), 0.0, True, False, {"bad": object(), "ok": 1}))
    with driving(env) as remote:
        remote.reset()
        info = remote.step([0, 0])[4]
        assert info["completed_episodes"] == 1 and len(info[WARNING]) == 1


def test_infos_are_fresh_every_time() -> None:
    """VAL-9: changing what a step returned changes nothing later."""
    with driving(telling({"a": [1], "b": np.zeros(2)})) as remote:
        remote.reset()
        info = remote.step([0, 0])[4]
        info["a"].append(2)
        info["b"][:] = 5
        info["episode_ids"].clear()
        again = remote.step([0, 0])[4]
        assert again["a"] == [1] and again["b"].tolist() == [0, 0]
        assert len(again["episode_ids"]) == 1


@pytest.mark.parametrize("info", [[1], "text", 3])
def test_an_info_that_is_no_mapping_is_an_error_of_the_env(info: Any) -> None:
    """SRV-4: named, not guessed at."""
    with driving(telling(info)) as remote:
        remote.reset()
        with pytest.raises(EnvironmentException, match="a mapping as info"):
            remote.step([0, 0])
