"""Placement and transfers on a torch device that is not the CPU; see support/far_device.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support import FunctionEnv, serving
from support.far_device import FAR, fetched, put

import rlmesh
from rlmesh.models import model_corners
from rlmesh.numpy import Model as NumpyModel
from rlmesh.numpy import RemoteEnv as NumpyRemoteEnv
from rlmesh.numpy import RemoteVectorEnv as NumpyRemoteVectorEnv
from rlmesh.spaces import Box, Dict, Discrete
from rlmesh.torch import TORCH, Model, RemoteEnv

ROW = {"s": np.arange(3, dtype=np.float32), "n": 2, "t": "go"}


@pytest.fixture(autouse=True)
def nothing_moved_yet() -> Iterator[None]:
    put.clear()
    fetched.clear()
    yield


def test_what_lies_on_the_device_cannot_be_read_in_place() -> None:
    """The device is one: what forgets to fetch from it fails."""
    with pytest.raises(TypeError, match="can't convert far:0 device type tensor to numpy"):
        np.asarray(torch.zeros(2).to(FAR) + 1)


def test_leaves_of_every_dtype_come_back_in_one_transfer() -> None:
    leaves = [
        torch.tensor([True, False]),
        torch.tensor(1 / 3, dtype=torch.float64),
        torch.tensor([[1, -2]], dtype=torch.int16),
        torch.zeros(0, 3),
        torch.tensor([2**63 + 1], dtype=torch.uint64),
        torch.tensor([1.5], dtype=torch.float16),
    ]
    far = [leaf.to(FAR) for leaf in leaves]
    near = torch.ones(2)
    hosted = TORCH.to_host_many([*far[:3], near, *far[3:]])
    assert len(fetched) == 1
    for array, leaf in zip([*hosted[:3], *hosted[4:]], leaves, strict=True):
        assert array.dtype == leaf.numpy().dtype and array.shape == tuple(leaf.shape)
        assert array.tobytes() == leaf.numpy().tobytes()
        assert array.flags.aligned
    assert hosted[3].ctypes.data == near.data_ptr()


# Models


class Seeing(Model):
    """Notes where its observations lie."""

    device = "far"

    def load(self) -> None:
        self.seen: list[Any] = []

    def note(self, observation: Any) -> None:
        self.seen.append({k: str(getattr(leaf, "device", leaf)) for k, leaf in observation.items()})


def test_row_obs_placement_every_tensor_leaf_is_on_the_device() -> None:
    class Policy(Seeing):
        def predict(self, observation: Any) -> Any:
            self.note(observation)
            return {"move": observation["s"] * 2, "grip": observation["s"] > 1}

    policy = Policy()
    corners = model_corners(policy)
    put.clear()  # that the device is there was found out
    action = corners.predict(ROW)
    assert policy.seen == [{"s": "far:0", "n": "2", "t": "go"}]
    assert action["move"].tolist() == [0, 2, 4] and action["grip"].tolist() == [False, False, True]
    assert put == [(3,)] and len(fetched) == 1


def test_row_obs_placement_a_fused_batch_is_one_transfer_a_leaf() -> None:
    class Policy(Seeing):
        def predict_batch(self, observations: Any) -> Any:
            self.note(observations)
            return observations["s"] + 1

    policy = Policy()
    corners = model_corners(policy)
    for rows in ([ROW] * 3, [{**ROW, "s": torch.from_numpy(ROW["s"])}] * 3):
        put.clear()
        fetched.clear()
        plans = corners.predict_rows(rows)
        assert sorted(put) == [(3,), (3, 3)] and fetched == [(3, 3)]
        assert [plan[0].tolist() for plan in plans] == [[1, 2, 3]] * 3
    corners.predict(ROW)  # through the batch corner, as a batch of one
    assert policy.seen == [
        {"s": "far:0", "n": "far:0", "t": str(["go"] * count)} for count in (3, 3, 1)
    ]


def test_rows_that_lie_on_the_device_already_are_fused_there() -> None:
    class Policy(Seeing):
        def predict_batch(self, observations: Any) -> Any:
            return observations["s"] + 1

    rows = [{"s": torch.full((2,), float(lane)).to(FAR)} for lane in range(3)]
    corners = model_corners(Policy())
    put.clear()
    plans = corners.predict_rows(rows)
    assert put == [] and fetched == [(3, 2)]
    assert [plan[0].tolist() for plan in plans] == [[1, 1], [2, 2], [3, 3]]


def test_row_read_time_a_device_chosen_in_load_or_later_holds() -> None:
    class Policy(Seeing):
        device = None

        def load(self) -> None:
            super().load()
            self.device = FAR

        def predict(self, observation: Any) -> Any:
            self.note(observation)
            return observation["s"]

    policy = Policy()
    corners = model_corners(policy)
    corners.predict(ROW)
    policy.device = "cpu"
    corners.predict(ROW)
    policy.device = None
    corners.predict(ROW)
    assert [seen["s"] for seen in policy.seen] == ["far:0", "cpu", "cpu"]


def test_without_fusion_each_env_has_a_batch_of_its_own_on_the_device() -> None:
    """MOD-13."""

    class Policy(Seeing):
        allow_fusion = False

        def predict_batch(self, observations: Any) -> Any:
            self.note(observations)
            return observations["s"]

    policy = Policy()
    model_corners(policy).predict_rows([ROW] * 4, groups=["a", "b", "a", "b"])
    assert policy.seen == [{"s": "far:0", "n": "far:0", "t": "['go', 'go']"}] * 2


def test_a_half_precision_chunk_with_a_graph_comes_back_and_bfloat16_says_what_to_do() -> None:
    """VAL-10."""

    class Policy(Seeing):
        def predict_chunk(self, observation: Any) -> Any:
            chunk = torch.ones(4, 2, dtype=self.dtype, requires_grad=True)
            return {"move": chunk.to(FAR)}

    policy = Policy()
    policy.dtype = torch.float16
    corners = model_corners(policy)
    assert [action["move"].tolist() for action in corners.plan(ROW, None, 2)] == [[1, 1]] * 2
    policy.dtype = torch.bfloat16
    words = r"predict_chunk\(\): bfloat16 is not supported.*cast to float32 first.*bfloat16"
    with pytest.raises(ValueError, match=words):
        corners.plan(ROW, None, 2)
    with pytest.raises(ValueError, match=words):
        corners.predict(ROW)


# Envs

PAIR = Dict({"image": Box(0, 255, (2, 2), "uint8"), "state": Box(-9, 9, (3,))})


class FarEnv:
    """A single env whose every number lies on the device."""

    observation_space, action_space = PAIR, Box(-1, 1, (3,))
    metadata: dict[str, Any] = {}  # noqa: RUF012 - as gymnasium's envs have it
    render_mode = None

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.state = torch.zeros(3).to(FAR)
        return self.observation(), {"start": self.state + 1}

    def observation(self) -> Any:
        return {"image": torch.full((2, 2), 7, dtype=torch.uint8).to(FAR), "state": self.state}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.state = self.state + (action if torch.is_tensor(action) else torch.from_numpy(action))
        first = self.state[0]
        ended = first >= 2
        return self.observation(), first * 2, ended, ended < 0, {"is_success": ended, "at": [first]}

    def close(self) -> None:
        pass


@pytest.mark.parametrize("device", ["far", FAR, "far:0"])
def test_actions_reach_step_on_the_device(device: Any) -> None:
    """SRV-20; and rewards, flags and infos leave it once a step, observations once a leaf."""
    env = FarEnv()
    with (
        serving(env, framework="torch", device=device) as server,
        NumpyRemoteEnv(server.address) as remote,
    ):
        observation, info = remote.reset()
        assert info["start"].tolist() == [1, 1, 1]
        assert observation["image"].tolist() == [[7, 7], [7, 7]]
        put.clear()
        fetched.clear()
        said = [remote.step(np.ones(3, np.float32)) for _ in range(2)]
    assert [action.device for action in env.actions] == [FAR, FAR]
    assert [(reward, ended, cut) for _, reward, ended, cut, _ in said] == [
        (2.0, False, False),
        (4.0, True, False),
    ]
    assert said[1][0]["state"].tolist() == [2, 2, 2]
    info = said[1][4]
    assert info["is_success"] is True and info["at"] == [2.0]
    assert len(fetched) == 2 * (1 + 2)  # the outcome, and a leaf each
    assert put.count((3,)) == 2  # the action; the images are put there by the env


class FarLanes:
    """A simulator that is batched natively on the device, with reset by mask."""

    single_observation_space, single_action_space = Box(-9, 9, (2,)), Box(-1, 1, (2,))
    metadata = {"autoreset_mode": "Disabled"}  # noqa: RUF012
    render_mode = None

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.masks: list[Any] = []
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self.masks.append(mask.tolist())
        held = torch.zeros(self.num_envs, 2)
        if len(self.masks) > 1:
            held = self.state.cpu()
            held[torch.from_numpy(mask)] = 0
        self.state = held.to(FAR)
        return self.state, {}

    def step(self, actions: Any) -> Any:
        self.actions.append(actions)
        self.state = self.state + actions
        first = self.state.select(1, 0)
        return self.state, first * 0.5, first >= 2, first < -9, {"is_success": first >= 2}

    def close(self) -> None:
        pass


def test_a_natively_batched_env_of_several_lanes() -> None:
    """VEC-14: tensors with a lane axis in and out; reset by mask where the env offers it."""
    env = FarLanes(3)
    with (
        serving(env, framework="torch", device="far") as server,
        NumpyRemoteVectorEnv(server.address) as remote,
    ):
        remote.reset()
        put.clear()
        fetched.clear()
        actions = np.float32([[1, 0], [0.5, 0], [0, 0]])
        remote.step(actions)
        observations, rewards, ended, cut, info = remote.step(actions)
        assert put == [(3, 2)] * 2 and len(fetched) == 2 * (1 + 1)
        assert observations.tolist() == [[2, 0], [1, 0], [0, 0]]
        assert rewards.tolist() == [1.0, 0.5, 0.0]
        assert ended.tolist() == [True, False, False] and not cut.any()
        assert info["is_success"].tolist() == [True, False, False]
        observations, _ = remote.reset(options={"reset_mask": ended})
        assert observations.tolist() == [[0, 0], [1, 0], [0, 0]]
    assert env.masks == [[True] * 3, [True, False, False]]
    assert all(action.device == FAR and action.shape == (3, 2) for action in env.actions)


def test_a_natively_batched_env_of_one_lane() -> None:
    """VEC-2: served as a single env; the lane axis is the env's own affair."""
    env = FarLanes(1)
    with (
        serving(env, framework="torch", device="far") as server,
        NumpyRemoteEnv(server.address) as remote,
    ):
        assert remote.reset()[0].tolist() == [0, 0]
        put.clear()
        fetched.clear()
        observation, reward, ended, cut, info = remote.step([1, 0.5])
        assert put == [(1, 2)] and len(fetched) == 2
        assert (observation.tolist(), reward, ended, cut) == ([1, 0.5], 0.5, False, False)
        assert info["is_success"] is False
    assert env.actions[0].device == FAR and env.actions[0].shape == (1, 2)


def test_an_env_whose_spaces_carry_the_batch() -> None:
    """One lane with a leading axis in its spaces, as some simulators have it."""
    batched = Box(-9, 9, (1, 2))

    def step(action: Any) -> Any:
        moved = action + 1
        return moved, moved.sum(1).to(FAR), torch.tensor([False]), torch.tensor([True]), {}

    env = FunctionEnv(
        observation_space=batched,
        action_space=batched,
        reset=lambda seed: (torch.zeros(1, 2).to(FAR), {}),
        step=step,
    )
    with (
        serving(env, framework="torch") as server,
        NumpyRemoteEnv(server.address) as remote,
    ):
        assert remote.reset()[0].shape == (1, 2)
        observation, reward, ended, cut, _ = remote.step(np.float32([[1, 2]]))
        assert (observation.tolist(), reward, ended, cut) == ([[2, 3]], 5.0, False, True)


def test_lanes_of_single_envs_on_the_device() -> None:
    envs = [FarEnv(), FarEnv()]
    with (
        serving(envs, framework="torch", device="far") as server,
        NumpyRemoteVectorEnv(server.address) as remote,
    ):
        remote.reset()
        observations, rewards, *_ = remote.step(np.float32([[1, 0, 0], [0.5, 1, 0]]))
        assert observations["state"].tolist() == [[1, 0, 0], [0.5, 1, 0]]
        assert rewards.tolist() == [2.0, 1.0]
    assert [env.actions[0].device for env in envs] == [FAR, FAR]


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_env_of_the_device_is_read_without_being_declared(lanes: int) -> None:
    """SRV-19: what leaves it is brought over as well; its actions are NumPy arrays then."""

    class Near(FarLanes):
        def step(self, actions: Any) -> Any:
            assert type(actions) is np.ndarray
            return super().step(torch.from_numpy(actions).to(FAR))

    def model(observations: Any) -> Any:
        return np.full_like(observations, 1.0)

    class Policy(NumpyModel):
        predict_batch = staticmethod(model)

    with serving(Near(lanes)) as server:
        over_the_wire = rlmesh.run(Policy(), server.address, seeds=range(4))
    in_process = rlmesh.run(Policy(), Near(lanes), seeds=range(4))
    for result in (over_the_wire, in_process):
        assert result.success_rate == 1.0
        assert [(e.steps, e.reward) for e in result.episodes] == [(2, 1.5)] * 4


def test_a_clients_action_may_lie_on_the_device() -> None:
    env = FunctionEnv()
    with serving(env) as server, RemoteEnv(server.address) as remote:
        remote.reset()
        remote.step(torch.tensor([0.5, -1.0], requires_grad=True).to(FAR))
    assert env.actions[0].tolist() == [0.5, -1]


def test_choices_on_the_device_are_choices() -> None:
    """SRV-24: a 0-d tensor is an element of Discrete, as an observation and as an action."""
    env = FunctionEnv(
        observation_space=Discrete(9),
        action_space=Discrete(5),
        reset=lambda seed: (torch.tensor(3).to(FAR), {}),
        step=lambda action: (torch.tensor(action).to(FAR), 0.0, False, False, {}),
    )
    with (
        serving(env, framework="torch", device="far") as server,
        RemoteEnv(server.address) as remote,
    ):
        assert remote.reset()[0] == 3
        assert remote.step(torch.tensor(4).to(FAR))[0] == 4
    assert env.actions == [4] and type(env.actions[0]) is int
