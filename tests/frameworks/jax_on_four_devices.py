"""Placement among four JAX devices. Not collected here: test_jax_devices.py runs it in a process of
its own, since how many devices there are is settled when JAX starts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import FunctionEnv, serving

import rlmesh
from rlmesh.jax import JAX, Model, RemoteEnv
from rlmesh.models import model_corners
from rlmesh.numpy import RemoteEnv as NumpyRemoteEnv
from rlmesh.numpy import RemoteVectorEnv as NumpyRemoteVectorEnv
from rlmesh.spaces import Box, Dict
from rlmesh.values.tree import tree_adopter, tree_stack

ROW = {"s": np.arange(3, dtype=np.float32), "d": np.float64([1 / 3]), "n": 2, "t": "go"}


def place(leaf: Any) -> Any:
    """Return the one device of an array, by number; other leaves as they are."""
    if not isinstance(leaf, jax.Array):
        return leaf
    (device,) = leaf.devices()
    return device.id


def places(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: place(leaf) for key, leaf in tree.items()}


def test_there_are_four() -> None:
    assert [device.id for device in jax.devices()] == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_row_obs_placement_every_array_leaf_is_on_the_device(number: int) -> None:
    seen: list[Any] = []

    class Policy(Model):
        device = f"cpu:{number}"

        def predict(self, observation: Any) -> Any:
            seen.append(observation)
            return {"move": observation["s"] * 2, "same": observation["d"]}

    action = model_corners(Policy()).predict(ROW)
    assert places(seen[0]) == {"s": number, "d": number, "n": 2, "t": "go"}
    assert action["move"].tolist() == [0, 2, 4]
    assert action["same"].dtype == np.float64 and action["same"][0] == 1 / 3


@pytest.mark.parametrize("device", ["cpu:3", jax.devices()[3]], ids=["name", "object"])
def test_row_obs_placement_of_a_fused_batch(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transfer a leaf, straight to the device; a batch of one likewise."""
    seen: list[Any] = []

    class Policy(Model):
        def load(self) -> None:
            self.device = device

        def predict_batch(self, observations: Any) -> Any:
            seen.append(observations)
            return observations["s"]

    corners = model_corners(Policy())
    moved: list[Any] = []
    put = jax.device_put
    monkeypatch.setattr(
        jax, "device_put", lambda x, device=None: moved.append(device) or put(x, device)
    )
    plans = corners.predict_rows([ROW] * 3)
    assert len(moved) == 3 and {target.id for target in moved} == {3}
    assert [plan[0].tolist() for plan in plans] == [[0, 1, 2]] * 3
    corners.predict(ROW)
    assert [places(batch) for batch in seen] == [
        {"s": 3, "d": 3, "n": 3, "t": ["go"] * count} for count in (3, 1)
    ]


def test_row_read_time_a_device_chosen_later_holds() -> None:
    seen: list[Any] = []

    class Policy(Model):
        device = "cpu:1"

        def predict(self, observation: Any) -> Any:
            seen.append(place(observation["s"]))
            return observation["s"]

    policy = Policy()
    corners = model_corners(policy)
    for device in ("cpu:1", "cpu:2", "cpu"):
        policy.device = device
        corners.predict(ROW)
    assert seen == [1, 2, 0]


def test_row_default_none_leaves_observations_free_to_follow_the_weights() -> None:
    """An array on no device in particular is computed with where the other operand is."""
    weights = jax.device_put(jnp.ones(3), jax.devices()[2])

    class Policy(Model):
        def predict(self, observation: Any) -> Any:
            action = observation["s"] * weights
            assert (place(observation["s"]), place(action)) == (0, 2)
            return action

    assert model_corners(Policy()).predict(ROW).tolist() == [0, 1, 2]


def test_leaves_of_other_devices_are_moved_and_fused() -> None:
    rows = [JAX.from_host(np.full(2, lane, np.float32), f"cpu:{lane}") for lane in range(2)]
    assert place(tree_adopter(JAX)({"x": rows[0]}, "cpu:3")["x"]) == 3
    same = [JAX.to_device(row, "cpu:1") for row in rows]
    fused = tree_stack(same, JAX, device="cpu:2")
    assert place(fused) == 2 and fused.tolist() == [[0, 0], [1, 1]]
    assert [place(row) for row in JAX.unstack(fused)] == [2, 2]


def test_a_device_that_is_not_there() -> None:
    known = "cpu:0, cpu:1, cpu:2, cpu:3"
    with pytest.raises(ValueError, match=rf"device='cpu:4': jax cannot .* such as {known}"):
        rlmesh.EnvServer(FunctionEnv(), framework="jax", device="cpu:4")


class Steps:
    """A single env in JAX: what it computes lies where its actions were."""

    observation_space = Dict({"a": Box(-9, 9, (3,)), "b": Box(0, 9, (2,), "uint8")})
    action_space = Box(-1, 1, (3,))
    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.state = JAX.from_host(np.zeros(3, np.float32), "cpu:2")
        return {"a": self.state, "b": jnp.zeros(2, jnp.uint8)}, {"start": self.state}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.state = jax.device_put(self.state, action.devices().pop()) + action
        first = self.state[0]
        observation = {"a": self.state, "b": self.state[:2].astype(jnp.uint8)}
        return observation, first * 2, first >= 2, first < -9, {"is_success": first >= 2}

    def close(self) -> None:
        pass


def test_actions_reach_step_on_the_device() -> None:
    """SRV-20, SRV-19; and everything else comes off it."""
    env = Steps()
    with (
        serving(env, framework="jax", device="cpu:3") as server,
        NumpyRemoteEnv(server.address) as remote,
    ):
        _, info = remote.reset()
        assert info["start"].tolist() == [0, 0, 0]
        said = [remote.step(np.ones(3)) for _ in range(2)]
    assert [place(action) for action in env.actions] == [3, 3]
    observation, reward, ended, cut, info = said[1]
    assert observation["a"].tolist() == [2, 2, 2] and observation["b"].tolist() == [2, 2]
    assert (reward, ended, cut, info["is_success"]) == (4.0, True, False, True)


class Lanes:
    """Lanes that are stepped together, in JAX."""

    num_envs = 3
    single_observation_space, single_action_space = Box(-9, 9, (2,)), Box(-1, 1, (2,))
    metadata = {"autoreset_mode": "Disabled"}  # noqa: RUF012
    render_mode = None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask")
        fresh = jnp.zeros((3, 2))
        self.state = fresh if mask is None else jnp.where(mask[:, None], fresh, self.state)
        return self.state, {}

    def step(self, actions: Any) -> Any:
        assert (place(actions), actions.shape) == (1, (3, 2))
        self.state = self.state + actions
        first = self.state[:, 0]
        return self.state, first, first >= 2, first < -9, {"is_success": first >= 2}

    def close(self) -> None:
        pass


def test_a_natively_batched_env() -> None:
    """VEC-14: with reset by mask, seeded lanes and all."""
    with (
        serving(Lanes(), framework="jax", device="cpu:1") as server,
        NumpyRemoteVectorEnv(server.address) as remote,
    ):
        remote.reset()
        actions = np.float32([[1, 0], [0.5, 0], [0, 0]])
        remote.step(actions)
        observations, rewards, ended, _, info = remote.step(actions)
        assert observations.tolist() == [[2, 0], [1, 0], [0, 0]]
        assert rewards.tolist() == [2, 1, 0] and ended.tolist() == [True, False, False]
        assert info["is_success"].tolist() == [True, False, False]
        observations, _ = remote.reset(options={"reset_mask": ended})
        assert observations.tolist() == [[0, 0], [1, 0], [0, 0]]


def test_a_clients_action_may_lie_on_any_device() -> None:
    env = FunctionEnv()
    with serving(env) as server, RemoteEnv(server.address) as remote:
        remote.reset()
        remote.step(JAX.from_host(np.float32([0.5, -1]), "cpu:3"))
    assert env.actions[0].tolist() == [0.5, -1]
