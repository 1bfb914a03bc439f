"""A predict of a served model: ours or the published 0.1.0, whichever this interpreter has."""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

import numpy as np

import rlmesh
from harness import announce, answer_rounds, end_with_driver
from payloads import PAYLOADS, Payload
from rlmesh.numpy import Model

PUBLISHED = not hasattr(rlmesh, "ModelServer")
"""Whether this is 0.1.0: its server does not say when it listens, its sessions want served envs."""

START_SECONDS = 20.0


class Trivial(Model):
    """Returns the same action, whatever it sees."""

    def load(self) -> None:
        self._action = PAYLOADS["floats"].action()

    def predict(self, observation: Any) -> np.ndarray:
        return self._action


def serve(address: str) -> None:
    end_with_driver()
    if PUBLISHED:
        announce(address=address)
        Trivial().serve(address)
    else:
        server = rlmesh.ModelServer(Trivial(), address)
        announce(address=server.address)
        server.serve()


def begin(address: str, env: Any) -> tuple[rlmesh.Session, Any]:
    """A session whose episode has begun, and the observation; waits for a server to listen."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            session = rlmesh.session(rlmesh.RemoteModel(address), env)
            observation, _ = session.reset(seed=0)
            session.predict(observation)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return session, observation


def drive(payload: Payload, address: str) -> None:
    env: Any = payload.make()
    if PUBLISHED:
        server = rlmesh.EnvServer(env, "127.0.0.1:0")
        threading.Thread(target=server.serve, daemon=True).start()
        env = server.address
    session, observation = begin(address, env)
    answer_rounds(lambda: session.predict(observation), version=rlmesh.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("payload", choices=PAYLOADS)
    parser.add_argument("address")
    args = parser.parse_args()
    if args.end == "server":
        serve(args.address)
    else:
        drive(PAYLOADS[args.payload], args.address)


if __name__ == "__main__":
    main()
