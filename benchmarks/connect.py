"""How long the constructor of a RemoteEnv takes: dial, handshake and contract."""

from __future__ import annotations

import argparse
import time

from harness import announce
from rlmesh.numpy import RemoteEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--times", type=int, default=50)
    args = parser.parse_args()
    taken: list[float] = []
    for _ in range(args.times):
        begun = time.perf_counter()
        env = RemoteEnv(args.address)
        taken.append((time.perf_counter() - begun) * 1e3)
        env.close()
    taken.sort()
    announce(p50=taken[len(taken) // 2], p95=taken[int(len(taken) * 0.95)])


if __name__ == "__main__":
    main()
