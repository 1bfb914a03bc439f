"""Clone Meta-World's pick-and-place expert into a small network: a few seconds on one core.

python train.py cloned.pt
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from metaworld.policies import ENV_POLICY_MAP

from policy import CHUNK, network

sys.path.append(str(Path(__file__).resolve().parents[1] / "metaworld_factory"))

from tasks import MetaWorld  # found by the line above

TASK = "pick-place-v3"
SEEDS = range(10, 50)
"""Variations to learn from; the evaluation takes others."""
UPDATES = 1500
BATCH = 256


def demonstrations() -> tuple[np.ndarray, np.ndarray]:
    """States `float32[M, 10]` and the chunks that the expert plays from them `float32[M, 8, 4]`.

    Half of the steps are disturbed, so that the clone also sees how to come back.
    """
    env, expert = MetaWorld().make(task=TASK), ENV_POLICY_MAP[TASK]()
    rng = np.random.default_rng(0)
    states: list[np.ndarray] = []
    chunks: list[np.ndarray] = []
    for seed in SEEDS:
        observation, _ = env.reset(seed=seed)
        actions: list[np.ndarray] = []
        done = False
        while not done:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it overshoots on purpose, and warns
                action = np.clip(expert.get_action(observation), -1.0, 1.0)
            states.append(np.concatenate([observation[:7], observation[-3:]]))
            actions.append(action)
            noise = rng.normal(0.0, 0.1, 4) * (rng.random() < 0.5)
            played = np.clip(action + noise, -1.0, 1.0).astype(np.float32)
            observation, _, terminated, truncated, _ = env.step(played)
            done = terminated or truncated
        padded = np.array(actions + [actions[-1]] * CHUNK)
        chunks += [padded[step : step + CHUNK] for step in range(len(actions))]
    env.close()
    return np.array(states, np.float32), np.array(chunks, np.float32)


def main(path: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    states, chunks = map(torch.from_numpy, demonstrations())
    mean, scale = states.mean(0), states.std(0) + 1e-3
    inputs = (states - mean) / scale
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(UPDATES):
        rows = torch.randint(len(inputs), (BATCH,))
        predicted = net(inputs[rows]).view(-1, CHUNK, 4)
        loss = torch.nn.functional.l1_loss(predicted, chunks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"net": net.state_dict(), "mean": mean, "scale": scale}, path)
    print(f"{len(inputs)} steps of the expert, L1 of the last batch {loss.item():.3f} -> {path}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["cloned.pt"])
