"""Vector envs through sockets: gymnasium's own in every autoreset mode, and other people's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from support import serving
from support.driving import driving, driving_lanes
from support.trees import assert_same
from support.zoo import Countdown, Everything, countdowns

from rlmesh import EnvironmentException, EnvServer
from rlmesh.numpy import RemoteVectorEnv
from rlmesh.spaces import Box, Discrete, Text, from_gymnasium_space
from rlmesh.wire.contract import AutoresetMode

GYMNASIUM = tuple(int(n) for n in gymnasium.__version__.split(".")[:2])
# Before 1.1 there was one mode and no reset_mask: 0.29 resets within the step.
MODES = ["NextStep", "SameStep", "Disabled"] if GYMNASIUM >= (1, 1) else ["SameStep"]
KINDS = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}


def vector(kind: str, mode: str, *lengths: int, **options: Any) -> Any:
    keywords = {"autoreset_mode": mode} if GYMNASIUM >= (1, 1) else {}
    return KINDS[kind](countdowns(*lengths, **options), **keywords)


def plain(tree: Any) -> Any:
    """Return a value in the form in which it arrives: sorted keys, lists for object arrays."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in sorted(tree.items())}
    if isinstance(tree, np.ndarray) and tree.dtype == object:
        return [plain(value) for value in tree]
    if isinstance(tree, (list, tuple)):
        return type(tree)(plain(value) for value in tree)
    return tree.item() if isinstance(tree, np.generic) else tree


def own(info: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in info.items() if k not in ("episode_ids", "completed_episodes")}


def drive(envs: Any, disabled: bool, seed: Any, steps: int = 25) -> list[Any]:
    """Return all that a vector env says; under DISABLED, ended lanes are reset by mask."""
    rng = np.random.default_rng(0)
    observations, info = envs.reset(seed=seed)
    said: list[Any] = [(observations, own(info))]
    for _ in range(steps):
        results = envs.step(rng.integers(0, 5, envs.num_envs))
        said.append((*results[:4], own(results[4])))
        ended = results[2] | results[3]
        if disabled and ended.any():
            observations, info = envs.reset(
                seed=int(rng.integers(99)), options={"reset_mask": ended}
            )
            said.append((observations, own(info)))
    return said


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_remote_vector_env_says_what_the_local_one_says(kind: str, mode: str) -> None:
    """VEC-1, VEC-5..VEC-10, issue 2: all autoreset modes, seeds as gymnasium takes them.

    The published server refuses SAME_STEP, and reset_mask on a vector env.
    """
    for seed, lengths in ((11, (3, 5, 4)), ([4, 5, 6], (3, 5, 4)), ([8, 2], (3, 4))):
        local = vector(kind, mode, *lengths)
        with driving_lanes(vector(kind, mode, *lengths)) as remote:
            assert remote.env_contract.autoreset_mode is AutoresetMode(mode)
            disabled = mode == "Disabled"
            got, expected = drive(remote, disabled, seed), drive(local, disabled, seed)
        local.close()
        assert_same(plain(got), plain(expected))
        observations, rewards, terminated, truncated, _ = got[1]
        assert (observations.dtype, observations.shape) == (np.float32, (len(lengths), 3))
        assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float64, bool, bool)


@pytest.mark.parametrize("mode", MODES)
def test_both_doors_carry_a_vector_env(door: str, mode: str) -> None:
    """VEC-4: at the gRPC door too, where arrays in infos are lists."""
    local = vector("sync", mode, 2, 3)
    with driving_lanes(vector("sync", mode, 2, 3)) as remote:
        assert remote.transport == door
        got, expected = drive(remote, mode == "Disabled", 1), drive(local, mode == "Disabled", 1)
    assert_same([s[:-1] for s in plain(got)], [s[:-1] for s in plain(expected)])


def test_the_mode_is_declared_as_gymnasium_has_it() -> None:
    """VEC-8: the enum where gymnasium has it, else its text."""
    for mode in MODES:
        with serving(vector("sync", mode, 2, 2)) as server:
            assert server.env_contract.metadata is not None
            assert server.env_contract.metadata["autoreset_mode"] == mode
            with RemoteVectorEnv(server.address) as remote:
                declared = remote.metadata["autoreset_mode"]
                if GYMNASIUM >= (1, 1):
                    declared = declared.value
                    assert remote.metadata["autoreset_mode"] in gymnasium.vector.AutoresetMode
                assert declared == mode
                assert remote.metadata["render_modes"] == ["rgb_array"]


@pytest.mark.parametrize("mode", MODES)
def test_some_lanes_may_be_reset(mode: str) -> None:
    """Issue 2: reset_mask on stock vector envs, whatever their mode; the others go on."""
    if GYMNASIUM < (1, 1):
        with driving_lanes(vector("sync", mode, 9, 9)) as remote:
            remote.reset()
            with pytest.raises(RuntimeError, match="cannot reset some of its lanes"):
                remote.reset(options={"reset_mask": np.array([True, False])})
        return
    with driving_lanes(vector("sync", mode, 9, 9, 9)) as remote:
        first = remote.reset(seed=0)
        ids = first[1]["episode_ids"]
        mask = np.array([True, False, True])
        stepped = remote.step([1, 2, 3])[0]
        stepped_copy = stepped.copy()
        stepped[:] = -7  # the caller's own: what it writes there is not what lane 1 observed
        observations, info = remote.reset(seed=[5, None, 6], options={"reset_mask": mask})
        assert observations[:, 1].tolist() == [0, 1, 0]
        np.testing.assert_array_equal(observations[1], stepped_copy[1])
        assert [a == b for a, b in zip(ids, info["episode_ids"], strict=True)] == (~mask).tolist()
        expected = [Countdown().reset(seed=s)[0] for s in (5, 6)]
        np.testing.assert_array_equal(observations[mask], expected)
        assert remote.step([0, 0, 0])[0][:, 1].tolist() == [1, 2, 1]


def test_reset_masks_are_checked() -> None:
    """VEC-5: a mask is one flag a lane, and marks at least one."""
    with driving_lanes([Countdown(), Countdown()]) as remote:
        with pytest.raises(RuntimeError, match="reset every lane once"):
            remote.reset(options={"reset_mask": np.array([True, False])})
        remote.reset()
        for mask, words in (
            (np.array([True]), r"expected bool\[2\].*got bool\[1\]"),
            (np.array([1, 0]), r"expected bool\[2\].*got int64\[2\]"),
            (np.array([False, False]), "marks no lane"),
        ):
            with pytest.raises(ValueError, match=words):
                remote.reset(options={"reset_mask": mask})
        for seed in ([1], [1, 2, 3]):
            with pytest.raises(ValueError, match="sequence of 2 ints"):
                remote.reset(seed=seed)
        remote.reset(seed=(3, 4))
        assert remote.step([0, 0])[0][:, 1].tolist() == [1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_stepping_an_ended_lane(mode: str) -> None:
    """VEC-9: under DISABLED refused on the client by lane; else the lane goes on by itself."""
    with driving_lanes(vector("sync", mode, 1, 3)) as remote:
        remote.reset()
        assert remote.step([1, 1])[2].tolist() == [True, False]
        if mode == "Disabled":
            with pytest.raises(RuntimeError, match=r"step\(\) of lanes \[0\].*reset_mask"):
                remote.step([1, 1])
            remote.reset(options={"reset_mask": np.array([True, False])})
        results = remote.step([1, 1])
        assert results[0][1, 1] == 2
        assert results[1].tolist() == ([0, 1] if mode == "NextStep" else [1, 1])


def test_text_leaves_are_lists_and_every_leaf_has_lanes() -> None:
    """VEC-7: a leading axis N on every leaf; text as a list of N strings."""
    keywords = {"autoreset_mode": "NextStep"} if GYMNASIUM >= (1, 1) else {}
    with driving_lanes(SyncVectorEnv([Everything] * 2, **keywords)) as remote:
        observations, _ = remote.reset(seed=3)
        actions = [remote.single_action_space.sample() for _ in range(2)]
        observations, *_ = remote.step(actions)
    twins = [Everything(), Everything()]
    expected = []
    for i, (twin, action) in enumerate(zip(twins, actions, strict=True)):
        twin.reset(seed=3 + i)
        expected.append(twin.step(action)[0])
    assert observations["task"] == [e["task"] for e in expected]
    for key in ("image", "state", "scale", "pad", "keys", "gear"):
        np.testing.assert_array_equal(observations[key], [e[key] for e in expected])
        assert observations[key].shape[0] == 2
    np.testing.assert_array_equal(observations["pair"][1], [e["pair"][1] for e in expected])


@pytest.mark.parametrize(
    "actions",
    [
        np.array([1, 2]),
        [1, 2],
        (1, 2),
        [np.int64(1), np.array(2)],
        np.array([1, 2], np.uint8),
    ],
    ids=repr,
)
def test_actions_of_all_lanes_in_any_dress(actions: Any) -> None:
    """VEC-6: an array with a leading axis N, or a sequence of N actions."""
    with driving_lanes(vector("sync", MODES[0], 9, 9)) as remote:
        remote.reset()
        assert remote.step(actions)[1].tolist() == [1, 2]
        with pytest.raises(ValueError, match="expected 2 batched values, got 3"):
            remote.step([0, 1, 2])
        with pytest.raises(ValueError, match="lane 1: expected an element of Discrete"):
            remote.step([0, 5])
        with pytest.raises(ValueError, match="expected 2 batched values"):
            remote.step(1)


def test_spaces_of_a_vector_client() -> None:
    """VEC-4: observation_space and action_space are aliases of the single ones."""
    with driving_lanes(vector("sync", MODES[0], 2, 2)) as remote:
        assert remote.num_envs == remote.env_contract.num_envs == 2
        assert remote.observation_space is remote.single_observation_space
        assert remote.action_space is remote.single_action_space
        single = from_gymnasium_space(Countdown().observation_space)
        assert remote.single_observation_space == single
        assert remote.single_action_space == Discrete(5)


def test_rendering_lanes(door: str) -> None:
    """VEC-15: one frame a lane; an env without a render mode gives None.

    In the published implementation the latter breaks the session.
    """
    if GYMNASIUM >= (1, 1):
        with driving_lanes(vector("sync", "NextStep", 9, 9, render_mode="rgb_array")) as remote:
            remote.reset()
            for steps in (1, 2):
                remote.step([0, 0])
                frames = [remote.render(env_index=lane) for lane in (0, 1, 1)]
                for frame in frames:
                    assert_same(frame, np.full((2, 3, 3), steps, np.uint8))
    with driving_lanes(vector("sync", MODES[0], 9, 9)) as remote:
        remote.reset()
        assert remote.render() is None
        with pytest.raises(ValueError, match="one env index below 2"):
            remote.render(env_index=2)
        remote.step([0, 0])


class Own:
    """Somebody's own vector env: no gymnasium anywhere, infos without masks."""

    render_mode = "rgb_array"

    def __init__(self, mode: str | None = None, lanes: int = 3, length: int = 2) -> None:
        self.num_envs = lanes
        self.single_observation_space = Box(-99, 99, (2,))
        self.single_action_space = Discrete(5)
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.mode, self.length = mode, length
        self.steps = np.zeros(lanes, int)
        self.episodes = np.zeros(lanes, int)
        self.renders = 0
        self.resets: list[dict[str, Any]] = []

    def _observe(self) -> Any:
        return [[e, s] for e, s in zip(self.episodes, self.steps, strict=True)]

    def reset(self, **arguments: Any) -> Any:
        self.resets.append(arguments)
        mask = (arguments.get("options") or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.steps[mask] = 0
        self.episodes[mask] += 1
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        assert actions.shape == (self.num_envs,)
        rolled = self.steps >= self.length + np.arange(self.num_envs)
        if self.mode == "NEXT_STEP":
            self.episodes[rolled] += 1
            self.steps[rolled] = -1
        self.steps += 1
        done = self.steps >= self.length + np.arange(self.num_envs)
        last, info = self._observe(), {"success": done.tolist(), "shared": "all"}
        if self.mode == "SAME_STEP":
            info["final_obs"] = last
            self.episodes[done] += 1
            self.steps[done] = 0
        rewards = np.where(rolled & (self.mode == "NEXT_STEP"), 0, actions)
        return self._observe(), rewards, done, np.zeros_like(done), info

    def render(self) -> Any:
        self.renders += 1
        return [np.full((1, 1, 3), lane, np.uint8) for lane in range(self.num_envs)]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("declared", "mode"),
    [
        (None, AutoresetMode.DISABLED),
        ("Disabled", AutoresetMode.DISABLED),
        ("NEXT_STEP", AutoresetMode.NEXT_STEP),
        ("SAME_STEP", AutoresetMode.SAME_STEP),
    ],
)
def test_a_vector_env_of_ones_own(door: str, declared: str | None, mode: AutoresetMode) -> None:
    """VEC-1, VEC-9, issue 2: any env with num_envs and single spaces; lists will do as batches."""
    with driving_lanes(Own(declared)) as remote:
        assert remote.env_contract.autoreset_mode is mode
        observations, _ = remote.reset(seed=3)
        assert observations.tolist() == [[1, 0]] * 3
        done: list[Any] = []
        for _ in range(3):
            results = remote.step([1, 2, 3])
            done.append(results[2].tolist())
            assert results[4]["shared"] == "all"
            ended = results[2]
            if mode is AutoresetMode.DISABLED and ended.any():
                remote.reset(options={"reset_mask": ended})
        assert done == [[False] * 3, [True, False, False], [False, True, False]]
        if mode is AutoresetMode.SAME_STEP:
            assert results[0].tolist() == [[2, 1], [2, 0], [1, 3]]
            assert results[4]["final_obs"][1] == [1, 3]


@pytest.mark.parametrize("wrong", [{"length": 0}, {"mode": None}])
def test_a_lane_that_does_not_roll_as_declared_is_an_error_of_the_env(
    wrong: dict[str, Any],
) -> None:
    """VEC-9, wire.md 8.2: after its last step a NEXT_STEP lane gives reward 0 and is not done.

    Else its rewards and episodes would silently be counted wrong.
    """
    env = Own("NEXT_STEP")
    vars(env).update(wrong)
    with driving_lanes(env) as remote:
        remote.reset()
        while not remote.step([1, 1, 1])[2][0]:
            pass
        with pytest.raises(EnvironmentException, match="NEXT_STEP lane 0: expected its reset"):
            remote.step([1, 1, 1])


def test_partial_reset_of_an_unknown_vector_env_is_refused() -> None:
    """Issue 2: an env that may ignore reset_mask would silently lose the running episodes."""
    env = Own("NEXT_STEP")
    with driving_lanes(env) as remote:
        remote.reset()
        with pytest.raises(RuntimeError, match="cannot reset some of its lanes; reset all of them"):
            remote.reset(options={"reset_mask": np.array([True, False, False])})
        assert remote.step([0, 0, 0])[0][:, 1].tolist() == [1, 1, 1]
    assert len(env.resets) == 1


def test_workers_that_forget_a_masked_reset_are_not_asked_for_one() -> None:
    """Issue 2: AsyncVectorEnv(shared_memory=False) rolls such a lane again, unseeded (seen in 1.4).

    The seeded episode would be thrown away in silence.
    """
    if GYMNASIUM < (1, 1):
        return
    env = AsyncVectorEnv(countdowns(1, 9), shared_memory=False, autoreset_mode="NextStep")
    with driving_lanes(env) as remote:
        remote.reset(seed=1)
        remote.step([0, 0])
        with pytest.raises(RuntimeError, match="cannot reset some of its lanes"):
            remote.reset(seed=2, options={"reset_mask": np.array([True, False])})
        assert remote.step([0, 0])[0][:, 1].tolist() == [0, 2]


def test_a_vector_env_renders_once_for_all_lanes() -> None:
    """VEC-15: one call of the env gives a frame for every lane; asking again renders again."""
    env = Own()
    with driving_lanes(env) as remote:
        remote.reset()
        assert [remote.render(env_index=i)[0, 0, 0] for i in range(3)] == [0, 1, 2]
        assert env.renders == 1
        remote.render(env_index=1)
        assert env.renders == 2
        remote.step([0, 0, 0])
        remote.render(env_index=2)
        assert env.renders == 3


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"metadata": {"autoreset_mode": "Sometimes"}}, ValueError, "got 'Sometimes'"),
        ({"num_envs": 0}, ValueError, "expected the number of lanes"),
        ({"num_envs": None}, ValueError, "expected the number of lanes"),
        ({"single_action_space": None}, TypeError, "must have single_action_space"),
        ({"reset": None}, TypeError, "must have a 'reset' method"),
    ],
)
def test_a_broken_vector_env_is_refused_at_construction(
    change: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """SRV-2, VEC-9: by name."""
    env = Own()
    vars(env).update(change)
    with pytest.raises(kind, match=words):
        EnvServer(env)


@pytest.mark.parametrize("rows", [2, 4])
def test_a_vector_env_that_miscounts_is_an_error_of_the_env(rows: int) -> None:
    """CNF-1: the lane count comes from the contract."""
    env = Own()
    env._observe = lambda: np.zeros((rows, 2))  # type: ignore[method-assign]
    words = f"expected 3 batched values.*got {rows}"
    with driving_lanes(env) as remote, pytest.raises(EnvironmentException, match=words):
        remote.reset()


ONE_LANE: dict[str, Callable[[], Any]] = {
    **{f"sync-{mode}": (lambda mode=mode: vector("sync", mode, 2)) for mode in MODES},
    **{
        f"own-{mode}": (lambda mode=mode: Own(mode, 1)) for mode in (None, "NEXT_STEP", "SAME_STEP")
    },
}


@pytest.mark.parametrize("name", ONE_LANE)
def test_a_vector_env_of_one_lane_is_a_single_env(name: str) -> None:
    """VEC-2: batch axis dropped from observations and infos, added to actions; no autoreset_mode.

    The published server refuses SAME_STEP here; ours hands out the ended episode's last values.
    """
    with driving(ONE_LANE[name]()) as remote:
        assert remote.env_contract.num_envs == 1
        assert "autoreset_mode" not in remote.metadata
        for episode in range(3):
            observation, _ = remote.reset(seed=episode)
            assert observation.shape == remote.observation_space_spec._shape
            for step in (1, 2):
                observation, reward, terminated, truncated, info = remote.step(3)
                assert observation[1] == step
                assert (reward, terminated, truncated) == (3.0, step == 2, False)
                if name.startswith("own"):
                    assert info["success"] is (step == 2) and info["shared"] == "all"
                else:
                    assert (info["steps"], info["deep"]) == (step, {"er": 3})
                    assert info["place"].tolist() == [step, 3]
                    assert info.get("is_success") is (True if step == 2 else None)


def test_one_lane_of_nested_values() -> None:
    """VEC-2: every kind of leaf loses and gains the axis."""
    keywords = {"autoreset_mode": "Disabled"} if GYMNASIUM >= (1, 1) else {}
    twin = Everything()
    with driving(SyncVectorEnv([Everything], **keywords)) as remote:
        got, expected = remote.reset(seed=1)[0], twin.reset(seed=1)[0]
        for _ in range(3):
            assert got in twin.observation_space
            assert (got["task"], got["gear"]) == (expected["task"], expected["gear"])
            np.testing.assert_array_equal(got["image"], expected["image"])
            np.testing.assert_array_equal(got["pair"][1], expected["pair"][1])
            action = twin.action_space.sample()
            got, expected = remote.step(action)[0], twin.step(action)[0]
        assert remote.render() is None or remote.render().shape == (6, 8, 3)


def test_text_actions_reach_a_gymnasium_vector_env() -> None:
    """VEC-6: gymnasium batches text as a tuple."""

    class Talking(Countdown):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Text(5)

        def step(self, action: Any) -> Any:
            assert isinstance(action, str)
            return super().step(len(action))

    with driving_lanes(SyncVectorEnv([Talking] * 2)) as remote:
        assert isinstance(remote.single_action_space, Text)
        remote.reset()
        assert remote.step(["a", "abc"])[1].tolist() == [1, 3]
