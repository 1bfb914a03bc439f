"""A policy server on openpi-client's own codec: ``openpi_program.py PORT``; prints its address.

It speaks as openpi's does: metadata first; an action dict for every observation; the traceback as
text, and the end of the connection, when the policy raises. ``prompt`` asks for misbehaviour.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

import numpy as np
from openpi_client import msgpack_numpy
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

METADATA = {"reset_pose": np.array([0.0, -1.5]), "name": "tiny", "config": {"horizon": 5}}


def chunk(observation: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return five actions that follow from the numbers of the observation alone."""
    x = np.asarray(observation.get("x", observation.get("state")), np.float32)
    total = np.float32(x.astype(np.float64).sum() % 2 - 1)
    if "image" in observation:
        total += np.float32(int(observation["image"].astype(np.int64).sum()) % 101 / 1010)
    steps = np.arange(5, dtype=np.float32) / 16
    return np.stack([total + steps, steps - total], 1).clip(-1, 1)


def answer(observation: dict[str, Any]) -> Any:
    prompt = observation.get("prompt", "")
    actions: Any = chunk(observation)
    if prompt == "raise":
        raise KeyError("no such normalization")
    if prompt == "sleep":
        time.sleep(30)
    if prompt == "nothing":
        return {"state": actions}
    if prompt == "flat":
        return {"actions": actions[0]}
    if prompt == "short":
        actions = actions[:3]
    if prompt == "empty":
        actions = actions[:0]
    timing = {"infer_ms": np.float32(1.5)}
    return {"actions": actions, "state": np.zeros(3), "policy_timing": timing}


def handle(connection: ServerConnection) -> None:
    request = connection.request
    if request is not None and request.path == "/silent":
        time.sleep(30)
    try:
        connection.send(msgpack_numpy.packb(METADATA))
        while True:
            observation = msgpack_numpy.unpackb(connection.recv())
            if observation.get("prompt") == "garbage":
                connection.send(b"\xc1")
                continue
            try:
                reply = answer(observation)
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(1011, "Internal server error. Traceback sent to the client.")
                return
            reply["server_timing"] = {"infer_ms": 2.0}
            connection.send(msgpack_numpy.packb(reply))
    except ConnectionClosed:
        return


if __name__ == "__main__":
    with serve(handle, "127.0.0.1", int(sys.argv[1]), compression=None, max_size=None) as server:
        print(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", flush=True)
        server.serve_forever()
