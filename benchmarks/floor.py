"""The floor: a raw Python socket ping-pong of the bytes of one step, and nothing else.

The request is the action's bytes, the response the observation's, gathered by `sendmsg` from where
they lie and received into one preallocated buffer, with the fastest socket settings known.
"""

from __future__ import annotations

import argparse
import socket
from contextlib import suppress

import numpy as np

from harness import announce, answer_rounds, end_with_driver
from payloads import PAYLOADS, Payload

UNIX = "unix://"

# The fastest settings found for a ping-pong on Linux, so that the floor is one.
LARGE = 1_000_000
LARGE_BUFFER = 4 << 20
TCP_SLICE = 256 << 10


def parts(payload: Payload) -> list[memoryview]:
    observation = payload.observation(0)
    leaves = observation.values() if isinstance(observation, dict) else [observation]
    return [
        memoryview(leaf.encode() if isinstance(leaf, str) else leaf.reshape(-1).view(np.uint8))
        for leaf in leaves
    ]


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


def serve(payload: Payload, address: str) -> None:
    if address.startswith(UNIX):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address.removeprefix(UNIX))
        announce(address=address)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        announce(address=f"127.0.0.1:{listener.getsockname()[1]}")
    end_with_driver()
    listener.listen()
    connection, _ = listener.accept()
    tune(connection, payload)
    request = memoryview(bytearray(payload.action().nbytes))
    response = parts(payload)
    with suppress(EOFError):
        while True:
            receive(connection, request)
            send(connection, response)


def drive(payload: Payload, address: str) -> None:
    if address.startswith(UNIX):
        connection = socket.socket(socket.AF_UNIX)
        tune(connection, payload)
        connection.connect(address.removeprefix(UNIX))
    else:
        host, port = address.split(":")
        connection = socket.create_connection((host, int(port)))
        tune(connection, payload)
    request = [memoryview(payload.action().reshape(-1).view(np.uint8))]
    response = memoryview(bytearray(payload.nbytes))

    def step() -> None:
        send(connection, request)
        receive(connection, response)

    answer_rounds(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("payload", choices=PAYLOADS)
    parser.add_argument("address")
    parser.add_argument(
        "--buffer", type=int, default=0, help="socket buffer bytes; 0: the system's"
    )
    args = parser.parse_args()
    end = serve if args.end == "server" else drive
    end(PAYLOADS[args.payload], args.address)


if __name__ == "__main__":
    main()
