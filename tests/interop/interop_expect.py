"""What a client must show: trajectories of the env itself, and comparison bit for bit with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import iterate
from interop_player import EPISODE_FIELDS
from interop_values import Digest, Tensorial, digest

Script = list[list[Any]]

RESERVED = ("episode_ids", "completed_episodes")
"""Info keys that clients add."""


def record(env: Any, seeds: Sequence[int], actions: Sequence[Any]) -> tuple[Script, list[Any]]:
    """Return a script of whole episodes, and what the env itself answered to it."""
    script: Script = []
    answers: list[Any] = []
    supply = iter(actions)
    for seed in seeds:
        script.append(["reset", {"seed": seed}])
        answers.append(env.reset(seed=seed))
        done = False
        while not done:
            action = next(supply)
            script.append(["step", action])
            answers.append(env.step(action))
            done = answers[-1][2] or answers[-1][3]
    return script, answers


def record_vector(
    envs: Any, seed: Any, actions: Sequence[Any], until_end: bool = False
) -> tuple[Script, list[Any]]:
    """Return a script of one reset and as many steps as ``actions``, and the vector env's answers.

    With ``until_end`` the script stops at the first step that ends an episode.
    """
    script: Script = [["reset", {"seed": seed}]]
    answers = [envs.reset(seed=seed)]
    for action in actions:
        script.append(["step", action])
        answers.append(envs.step(action))
        if until_end and (np.any(answers[-1][2]) or np.any(answers[-1][3])):
            break
    return script, [(lanes_of(envs, answer[0]), *answer[1:]) for answer in answers]


def samples(space: spaces.Space[Any], count: int, seed: int = 0) -> list[Any]:
    """Return ``count`` seeded samples."""
    space.seed(seed)
    return [space.sample() for _ in range(count)]


class LocalLanes:
    """A list of envs with the surface of a vector env: what served lanes are compared with."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self.envs = envs

    def reset(self, seed: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        """Reset every env, with its own seed or ``seed`` plus its lane."""
        seeds = seed if isinstance(seed, list) else [seed + i for i in range(len(self.envs))]
        pairs = [env.reset(seed=one) for env, one in zip(self.envs, seeds, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def step(self, actions: Sequence[Any]) -> tuple[Any, ...]:
        """Step every env; each of the five parts is a list of one a lane."""
        taken = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        return tuple(list(part) for part in zip(*taken, strict=True))


def lanes_of(envs: Any, observations: Any) -> list[Any]:
    """Return a vector env's observations as one a lane."""
    if isinstance(envs, LocalLanes):
        return observations
    return list(iterate(envs.observation_space, observations))


def returned(outcome: Mapping[str, Any]) -> Any:
    """Return a move's value; AssertionError shows what it raised instead."""
    assert "returned" in outcome, f"raised {outcome['raised'][0]}: {outcome['text']}"
    return outcome["returned"]


def same_value(space: spaces.Space[Any], shown: Any, meant: Any, where: str) -> None:
    """Assert that a client's value is the env's: type, dtype, shape and every bit."""
    if isinstance(space, spaces.Dict):
        assert type(shown) is dict, f"{where}: {type(shown)}"
        assert set(shown) == set(space.spaces), where
        for key, child in space.items():
            same_value(child, shown[key], meant[key], f"{where}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        assert type(shown) is tuple, f"{where}: {type(shown)}"
        for i, (child, one, other) in enumerate(zip(space, shown, meant, strict=True)):
            same_value(child, one, other, f"{where}[{i}]")
    elif isinstance(space, spaces.Text):
        assert type(shown) is str, f"{where}: {type(shown)}"
        assert shown == meant, where
    elif isinstance(space, spaces.Discrete):
        assert type(shown) is int, f"{where}: {type(shown)}"
        assert shown == meant, where
    else:
        same_array(shown, np.asarray(meant, space.dtype), where)


def same_array(shown: Any, meant: np.ndarray[Any, Any], where: str) -> None:
    """Assert that an array leaf is ``meant``, bit for bit."""
    if isinstance(shown, Tensorial):
        shown = shown.array
    assert isinstance(shown, (np.ndarray, Digest)), f"{where}: {type(shown)}"
    form = (shown.dtype, shown.shape)
    # 0.1.0 declares gymnasium's MultiBinary, which is int8, as uint8.
    one_byte = {shown.dtype, meant.dtype} == {np.dtype(np.int8), np.dtype(np.uint8)}
    assert form == (meant.dtype, meant.shape) or (one_byte and shown.shape == meant.shape), (
        f"{where}: {form}, expected {(meant.dtype, meant.shape)}"
    )
    if isinstance(shown, Digest):
        assert shown.sha256 == digest(meant), f"{where}: bytes differ"
    else:
        assert shown.tobytes() == meant.tobytes(), f"{where}: {shown} != {meant}"


def lane_value(space: spaces.Space[Any], batched: Any, lane: int, lanes: int) -> Any:
    """Return one lane of a client's batched value, as a client of a single env would show it."""
    if isinstance(space, spaces.Dict):
        return {key: lane_value(child, batched[key], lane, lanes) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(lane_value(s, b, lane, lanes) for s, b in zip(space, batched, strict=True))
    assert len(batched) == lanes, f"expected {lanes} lanes: {batched}"
    value = batched[lane]
    return int(value) if isinstance(space, spaces.Discrete) else value


def info_form(value: Any) -> Any:
    """Return an info value as it travels: numbers as Python's, arrays and tuples as lists."""
    if isinstance(value, Mapping):
        return {key: info_form(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return info_form(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    return [info_form(item) for item in value] if isinstance(value, (list, tuple)) else value


def same_info(shown: Mapping[str, Any], meant: Mapping[str, Any], where: str) -> None:
    """Assert that an info map is the env's, apart from what clients add."""
    rest = {key: value for key, value in shown.items() if key not in RESERVED}
    assert repr(_sorted(rest)) == repr(_sorted(info_form(meant))), where  # 1 is not True is not 1.0


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def same_episodes(
    space: spaces.Space[Any], outcomes: Sequence[Any], answers: Sequence[Any]
) -> None:
    """Assert that a single env's client showed the env's own trajectory."""
    assert len(outcomes) == len(answers)
    episode_id: Any = None
    for i, (outcome, meant) in enumerate(zip(outcomes, answers, strict=True)):
        where, shown = f"answer {i}", returned(outcome)
        same_value(space, shown[0], meant[0], where)
        same_info(shown[-1], meant[-1], where)
        (named,) = shown[-1]["episode_ids"]
        if len(meant) == 2:
            assert named != episode_id, where
            episode_id = named
            continue
        assert [type(part) for part in shown[1:4]] == [float, bool, bool], where
        assert shown[1:4] == tuple(meant[1:4]), where
        assert named == episode_id, where
        assert shown[-1].get("completed_episodes", 0) == int(meant[2] or meant[3]), where


def same_lockstep(
    space: spaces.Space[Any], outcomes: Sequence[Any], answers: Sequence[Any], lanes: int
) -> None:
    """Assert that a vector env's client showed its trajectory; infos are left to the caller."""
    assert len(outcomes) == len(answers)
    for i, (outcome, meant) in enumerate(zip(outcomes, answers, strict=True)):
        shown = returned(outcome)
        for lane, value in enumerate(meant[0]):
            same_value(
                space, lane_value(space, shown[0], lane, lanes), value, f"answer {i}, {lane=}"
            )
        assert len(set(shown[-1]["episode_ids"])) == lanes, f"answer {i}"
        if len(meant) == 5:
            for part, dtype in zip((1, 2, 3), (np.float64, np.bool_, np.bool_), strict=True):
                same_array(shown[part], np.asarray(meant[part], dtype), f"answer {i}, part {part}")
            ended = np.logical_or(meant[2], meant[3])
            assert shown[-1]["completed_episodes"] == int(ended.sum()), f"answer {i}"


def evaluated(
    env: Any,
    policy: Any,
    seeds: Sequence[int | None],
    options: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the episodes of ``policy`` on the env itself, in the form a published run reports."""
    return [_episode(env, policy, index, seed, options) for index, seed in enumerate(seeds)]


def _episode(
    env: Any, policy: Any, index: int, seed: int | None, options: dict[str, Any] | None
) -> dict[str, Any]:
    observation, info = env.reset(seed=seed, options=options)
    reward, steps, terminated, truncated = 0.0, 0, False, False
    while not (terminated or truncated):
        observation, gained, terminated, truncated, info = env.step(policy(observation))
        reward, steps = reward + float(gained), steps + 1
    return {
        "index": index,
        "seed": seed,
        "steps": steps,
        "reward": reward,
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "success": info.get("is_success"),
    }


def rolled(envs: Any, policy: Any, budget: int) -> list[dict[str, Any]]:
    """Return the first ``budget`` episodes that NEXT_STEP lanes start, in order of their start."""
    rows: list[dict[str, Any]] = []
    lanes = range(envs.num_envs)
    observations, _ = envs.reset()
    running = [begun(rows, budget) for _ in lanes]
    rolling = np.zeros(envs.num_envs, bool)
    while len(rows) < budget or any(row["success"] is None for row in rows):
        observations, rewards, terminated, truncated, info = envs.step(policy(observations))
        for lane in lanes:
            if rolling[lane]:
                running[lane] = begun(rows, budget)
            elif (row := running[lane]) is not None:
                row["steps"] += 1
                row["reward"] += float(rewards[lane])
                if terminated[lane] or truncated[lane]:
                    row["terminated"] = bool(terminated[lane])
                    row["truncated"] = bool(truncated[lane])
                    row["success"] = bool(info["is_success"][lane])
        rolling = terminated | truncated
    return rows


def begun(rows: list[dict[str, Any]], budget: int) -> dict[str, Any] | None:
    """Return the row of an episode that starts now; None if it is one too many."""
    if len(rows) == budget:
        return None
    row = {**dict.fromkeys(EPISODE_FIELDS), "index": len(rows), "steps": 0, "reward": 0.0}
    rows.append(row)
    return row
