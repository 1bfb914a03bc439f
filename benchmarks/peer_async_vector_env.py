"""The peer on one machine: gymnasium's AsyncVectorEnv with shared memory and one worker process.

The worker's one environment has the whole payload as its observation, so the same bytes cross.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np

from harness import answer_rounds
from payloads import PAYLOADS, ConstantEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("payload", choices=PAYLOADS)
    payload = PAYLOADS[parser.parse_args().payload].folded()
    envs = gym.vector.AsyncVectorEnv([lambda: ConstantEnv(payload)], shared_memory=True)
    envs.reset(seed=0)
    actions = payload.action()[np.newaxis]
    answer_rounds(lambda: envs.step(actions), peer_pid=envs.processes[0].pid)
    envs.close(terminate=True)


if __name__ == "__main__":
    main()
