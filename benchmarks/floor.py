"""The floor: a raw Python socket ping-pong of the bytes of one step, and nothing else.

The request is the action's bytes, the response the observation's, or the other way round for a
predict: gathered by `sendmsg` from where they lie and received into one preallocated buffer, with
the fastest socket settings known.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from harness import announce, answer_rounds, end_with_driver
from payloads import PAYLOADS, Payload

UNIX = "unix://"

# The fastest settings found for a ping-pong on Linux, so that the floor is one.
LARGE = 1_000_000
LARGE_BUFFER = 4 << 20
TCP_SLICE = 256 << 10


Parts = list[memoryview]


def exchange(payload: Payload, call: str) -> tuple[Parts, Parts]:
    """What the client sends and what the server answers."""
    observation = payload.observation(0)
    leaves = observation.values() if isinstance(observation, dict) else [observation]
    seen = [
        memoryview(leaf.encode() if isinstance(leaf, str) else leaf.reshape(-1).view(np.uint8))
        for leaf in leaves
    ]
    done = [memoryview(payload.action().reshape(-1).view(np.uint8))]
    return (done, seen) if call == "step" else (seen, done)


def room(parts: Parts) -> memoryview:
    return memoryview(bytearray(sum(map(len, parts))))


def tune(connection: socket.socket, payload: Payload) -> None:
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    elif payload.nbytes >= LARGE:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_BUFFER)


def send(connection: socket.socket, buffers: list[memoryview]) -> None:
    sent = connection.sendmsg(buffers)
    for buffer in buffers:
        if sent < len(buffer):
            connection.sendall(buffer[sent:])
        sent = max(0, sent - len(buffer))


def receive(connection: socket.socket, target: memoryview) -> None:
    unix = connection.family == socket.AF_UNIX
    flags, most = (0, len(target)) if unix else (socket.MSG_WAITALL, TCP_SLICE)
    got = 0
    while got < len(target):
        more = connection.recv_into(target[got : got + most], 0, flags)
        if not more:
            raise EOFError
        got += more


def serve(payload: Payload, address: str, call: str) -> None:
    if address.startswith(UNIX):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address.removeprefix(UNIX))
        announce(address=address)
    else:
        host, port = address.split(":")
        listener = socket.create_server((host, int(port)))
        announce(address=f"{host}:{listener.getsockname()[1]}")
    end_with_driver()
    listener.listen()
    connection, _ = listener.accept()
    tune(connection, payload)
    asked, response = exchange(payload, call)
    request = room(asked)
    with suppress(EOFError):
        while True:
            receive(connection, request)
            send(connection, response)


def connect(payload: Payload, address: str, call: str) -> Callable[[], None]:
    """Dial a server; the function that makes one round trip."""
    if address.startswith(UNIX):
        connection = socket.socket(socket.AF_UNIX)
        tune(connection, payload)
        connection.connect(address.removeprefix(UNIX))
    else:
        host, port = address.split(":")
        connection = socket.create_connection((host, int(port)))
        tune(connection, payload)
    request, answered = exchange(payload, call)
    response = room(answered)

    def step() -> None:
        send(connection, request)
        receive(connection, response)

    return step


def drive(payload: Payload, address: str, call: str) -> None:
    answer_rounds(connect(payload, address, call))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("payload", choices=PAYLOADS)
    parser.add_argument("address")
    parser.add_argument("call", nargs="?", choices=("step", "predict"), default="step")
    args = parser.parse_args()
    end = serve if args.end == "server" else drive
    end(PAYLOADS[args.payload], args.address, args.call)


if __name__ == "__main__":
    main()
