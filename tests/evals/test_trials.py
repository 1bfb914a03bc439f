"""Trials: features.md TRI-1, SES-2, FAC-6; what of a run's episodes decides how they begin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rlmesh

SEEDS = [11, 22, 33, 44, 55]
BASE = 3


class Walks(gym.Env):  # type: ignore[type-arg]
    """Trial k lasts 2 + k % 3 steps with a reward of k each, and begins at (k, the seed's draw)."""

    def __init__(self) -> None:
        self.observation_space = Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = Discrete(2)
        self.asked: list[Any] = []

    def _seen(self) -> Any:
        return np.array([self.trial, self.drawn], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.asked.append((seed, options))
        trial = rlmesh.trial_index(options)
        self.trial = -1 if trial is None else trial
        self.drawn = int(self.np_random.integers(1000)) if seed is not None else 0
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._seen(), float(self.trial), self.steps >= 2 + self.trial % 3, False, {}


class Trials(rlmesh.EnvFactory):
    reset_options = ("trial_index",)

    def make(self) -> Any:
        return Walks()


def lanes(make: Callable[[], Any]) -> type[rlmesh.EnvFactory]:
    return type("Lanes", (Trials,), {"make": lambda self: make()})


def policy(observation: Any) -> int:
    return 0


def walked(result: rlmesh.RunResult) -> list[tuple[Any, ...]]:
    return [(e.index, e.trial, e.seed, e.steps, e.reward) for e in result.episodes]


def meant(seeds: list[int | None], base: int = BASE) -> list[tuple[Any, ...]]:
    trials = [(index, base + index, seed) for index, seed in enumerate(seeds)]
    return [(i, trial, seed, 2 + trial % 3, trial * (2.0 + trial % 3)) for i, trial, seed in trials]


SOURCES: dict[str, Callable[[], Any]] = {
    "factory": Trials,
    "factories": lambda: [Trials(), Trials()],
    "one factory, twice": lambda: [Trials] * 2,
    **{
        f"{kind.__name__} {mode.name}": (
            lambda kind=kind, mode=mode: lanes(lambda: kind([Walks] * 2, autoreset_mode=mode))()
        )
        for kind in (SyncVectorEnv, AsyncVectorEnv)
        for mode in AutoresetMode
    },
    "a vector of one": lambda: lanes(lambda: SyncVectorEnv([Walks]))(),
}
SERVED: dict[str, Callable[[], Any]] = {
    "one": lambda: Trials().make(),
    "lanes": lambda: [Trials().make() for _ in range(3)],
    "vector": lambda: lanes(lambda: SyncVectorEnv([Walks] * 2))().make(),
}


@contextmanager
def serving(name: str) -> Iterator[str]:
    with rlmesh.EnvServer(SERVED[name]()) as server:
        server.start()
        yield server.address


@pytest.mark.parametrize("seeded", [True, False], ids=["seeds", "no seeds"])
@pytest.mark.parametrize("name", SOURCES)
def test_tri_1_every_episode_walks_its_own_trial(name: str, seeded: bool) -> None:
    """Alone, in lanes of every autoreset mode, and in lists: an episode has the same trial."""
    how: dict[str, Any] = {"seeds": SEEDS} if seeded else {"episodes": len(SEEDS)}
    result = rlmesh.run(policy, SOURCES[name](), trial_index_base=BASE, **how)
    assert walked(result) == meant([*SEEDS] if seeded else [None] * len(SEEDS))


@pytest.mark.parametrize("seeded", [True, False], ids=["seeds", "no seeds"])
@pytest.mark.parametrize("name", SERVED)
def test_tri_1_the_same_over_a_socket(name: str, seeded: bool) -> None:
    how: dict[str, Any] = {"seeds": SEEDS} if seeded else {"episodes": len(SEEDS)}
    with serving(name) as address:
        result = rlmesh.run(policy, address, trial_index_base=BASE, **how)
    assert walked(result) == meant([*SEEDS] if seeded else [None] * len(SEEDS))


def test_tri_1_a_lane_is_reset_alone_with_the_trial_and_the_seed_of_its_episode() -> None:
    envs = [Trials().make() for _ in range(2)]
    with rlmesh.EnvServer(envs, close_env_on_shutdown=False) as server:
        server.start()
        rlmesh.run(policy, server.address, seeds=SEEDS, trial_index_base=BASE)
    asked = Counter((seed, json.dumps(options)) for env in envs for seed, options in env.asked)
    assert asked == Counter(
        (seed, json.dumps({"trial_index": BASE + i})) for i, seed in enumerate(SEEDS)
    )


def test_tri_1_budgets_below_the_lanes() -> None:
    for episodes in (1, 2, 3):
        source = lanes(lambda: SyncVectorEnv([Walks] * 3))()
        result = rlmesh.run(policy, source, episodes=episodes, trial_index_base=BASE)
        assert walked(result) == meant([None] * episodes)


def test_tri_1_an_env_that_takes_trials_walks_them_from_0() -> None:
    assert walked(rlmesh.run(policy, Trials, episodes=3)) == meant([None] * 3, base=0)


def test_tri_1_a_session_runs_and_goes_on_at_another_trial() -> None:
    with rlmesh.session(policy, Trials()) as session:
        first = session.run(episodes=2)
        second = session.run(episodes=2, trial_index_base=2)
    assert [e.trial for e in first.episodes + second.episodes] == [0, 1, 2, 3]
    assert [e.reward for e in second.episodes] == [8.0, 6.0]


def test_tri_1_every_way_of_running_takes_it() -> None:
    model = rlmesh.numpy.Model(policy)
    assert walked(model.run(Trials(), episodes=2, trial_index_base=BASE)) == meant([None] * 2)
    with model.session(Trials()) as session:
        assert walked(session.run(episodes=2, trial_index_base=BASE)) == meant([None] * 2)
    with rlmesh.ModelServer(model) as server:
        server.start()
        remote = rlmesh.RemoteModel(server.address)
        result = rlmesh.run(remote, Trials(), episodes=2, trial_index_base=BASE)
    assert walked(result) == meant([None] * 2)


def test_tri_1_an_env_that_lists_no_trials_is_sent_none_and_a_base_is_warned_of() -> None:
    env = Walks()
    with pytest.warns(
        UserWarning, match="trial_index_base=3 was given, but Walks declares no"
    ) as w:
        result = rlmesh.run(policy, env, episodes=2, trial_index_base=BASE)
    assert w[0].filename == __file__
    assert [e.trial for e in result.episodes] == [3, 4]
    assert env.asked == [(None, None)] * 2
    assert [e.trial for e in rlmesh.run(policy, env, episodes=2).episodes] == [0, 1]


def test_tri_1_of_several_envs_only_those_that_list_it_are_sent_it() -> None:
    plain, listing = Walks(), Trials().make()
    with pytest.warns(UserWarning, match="but Walks declares no reset option 'trial_index'"):
        rlmesh.run(policy, [plain, listing], episodes=4, trial_index_base=BASE)
    assert all(options is None for _, options in plain.asked)
    assert listing.asked and all("trial_index" in options for _, options in listing.asked)


def test_tri_1_lanes_whose_resets_share_their_options_are_refused() -> None:
    """AsyncVectorEnv without shared memory cannot reset a lane alone: one trial for all is none."""
    source = lanes(lambda: AsyncVectorEnv([Walks] * 2, shared_memory=False))()
    with pytest.raises(ValueError, match=r"which trials .its reset option 'trial_index'. need"):
        rlmesh.run(policy, source, episodes=3)


@pytest.mark.parametrize(
    ("base", "error", "words"),
    [
        (-1, ValueError, "trial_index_base must be 0 or more, got -1"),
        (1.5, TypeError, "trial_index_base must be an int, got 1.5"),
        (True, TypeError, "trial_index_base must be an int"),
        (None, TypeError, "trial_index_base must be an int"),
    ],
)
def test_tri_1_an_impossible_base_is_refused_before_anything_connects(
    base: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        rlmesh.run(policy, "127.0.0.1:1", trial_index_base=base)


# SES-2: by hand


def test_ses_2_reset_delivers_the_trial() -> None:
    with rlmesh.session(policy, Trials()) as session:
        observation, _ = session.reset(seed=11, trial_index=5)
        assert observation[0] == 5
        assert session.reset()[0][0] == -1
        for index, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError)):
            with pytest.raises(error, match="trial_index must be"):
                session.reset(trial_index=index)  # type: ignore[arg-type]


def test_ses_2_reset_delivers_it_over_a_socket() -> None:
    with serving("one") as address, rlmesh.session(policy, address) as session:
        assert session.reset(trial_index=5)[0][0] == 5


def test_ses_2_reset_warns_where_it_cannot() -> None:
    with rlmesh.session(policy, Walks()) as session:
        with pytest.warns(UserWarning, match="trial_index=5 was given, but the env declares") as w:
            observation, _ = session.reset(trial_index=5)
        assert w[0].filename == __file__
        assert observation[0] == -1


# On record


def test_trials_are_recorded_in_the_result_and_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    how: dict[str, Any] = {"episodes": 4, "trial_index_base": BASE}
    result = rlmesh.run(policy, Trials(), journal=path, **how)
    assert [e["trial"] for e in result.to_dict()["episodes"]] == [3, 4, 5, 6]
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["config"]["trial_index_base"] == BASE
    assert [line["episode"]["trial"] for line in lines] == [3, 4, 5, 6]

    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    resumed = rlmesh.run(policy, Trials(), journal=path, **how)
    assert walked(resumed) == walked(result)
    with pytest.raises(ValueError, match="trial_index_base: the journal has 3, this run has 0"):
        rlmesh.run(policy, Trials(), journal=path, episodes=4)


def test_a_journal_that_names_no_trials_is_of_those_from_0(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    result = rlmesh.run(policy, Trials(), journal=path, episodes=3)
    head, *lines = map(json.loads, path.read_text().splitlines())
    del head["config"]["trial_index_base"]
    for line in lines:
        del line["episode"]["trial"]
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines[:2]]))
    assert walked(rlmesh.run(policy, Trials(), journal=path, episodes=3)) == walked(result)
    with pytest.raises(ValueError, match="trial_index_base: the journal has 0, this run has 3"):
        rlmesh.run(policy, Trials(), journal=path, episodes=3, trial_index_base=BASE)


class Breaks(Walks):
    """Fails once, at the second step of trial 4."""

    broken = False

    def step(self, action: Any) -> Any:
        if self.trial == 4 and self.steps == 1 and not self.broken:
            self.broken = True
            raise RuntimeError("the simulator crashed")
        return super().step(action)


def test_an_episode_that_is_run_again_walks_the_same_trial() -> None:
    env = type("Broken", (Trials,), {"make": lambda self: Breaks()})().make()
    with rlmesh.EnvServer(env) as server:
        server.start()
        result = rlmesh.run(policy, server.address, episodes=3, trial_index_base=BASE, retries=1)
    assert walked(result) == meant([None] * 3)
    assert [(e.index, e.trial, e.attempts) for e in result.episodes] == [
        (0, 3, 1),
        (1, 4, 2),
        (2, 5, 1),
    ]
    assert [asked[1]["trial_index"] for asked in env.asked] == [3, 4, 4, 5]
