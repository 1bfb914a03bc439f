"""A step through rlmesh: ours or the published 0.1.0, whichever this interpreter has installed."""

from __future__ import annotations

import argparse

import rlmesh
from harness import announce, answer_rounds, end_with_driver
from payloads import PAYLOADS, Payload
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv


def serve(payload: Payload, address: str) -> None:
    server = rlmesh.EnvServer(payload.make(), address)
    end_with_driver()
    announce(address=server.address)
    server.serve()


def drive(payload: Payload, address: str) -> None:
    client = RemoteVectorEnv if payload.lanes else RemoteEnv
    env = client(address)
    env.reset(seed=0)
    action = payload.action()
    answer_rounds(lambda: env.step(action), version=rlmesh.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("payload", choices=PAYLOADS)
    parser.add_argument("address")
    args = parser.parse_args()
    end = serve if args.end == "server" else drive
    end(PAYLOADS[args.payload], args.address)


if __name__ == "__main__":
    main()
