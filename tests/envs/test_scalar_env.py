"""A single env through a socket: what it is asked, what comes back, and who refuses what."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import FunctionEnv, serving
from support.driving import driving
from support.trees import assert_same
from support.zoo import Countdown, Everything

import rlmesh
from rlmesh import EnvironmentException, EnvServer, Tensor
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple, from_gymnasium_space


def without_ids(info: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in info.items() if k not in ("episode_ids", "completed_episodes")}


def play(env: Any, actions: list[Any], seed: int) -> list[Any]:
    """Return everything an env says in ``len(actions)`` steps over several episodes."""
    observation, info = env.reset(seed=seed)
    said: list[Any] = [(observation, without_ids(info))]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        said.append((observation, reward, terminated, truncated, without_ids(info)))
        if terminated or truncated:
            observation, info = env.reset()
            said.append((observation, without_ids(info)))
    return said


def plain(tree: Any) -> Any:
    """Return a value in the form in which it arrives: sorted keys, Python numbers."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in sorted(tree.items())}
    if isinstance(tree, (list, tuple)):
        return type(tree)(plain(value) for value in tree)
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make("CartPole-v1"),
        lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7),
        lambda: Countdown(3),
        lambda: Countdown(9, limit=4),
    ],
    ids=["CartPole", "Pendulum", "Countdown", "truncated"],
)
def test_the_remote_env_says_what_the_local_one_says(door: str, make: Callable[[], Any]) -> None:
    """CLI-5, CLI-6: same seed, same actions: same numbers, bit by bit, over several episodes."""
    local = make()
    local.action_space.seed(7)
    actions = [local.action_space.sample() for _ in range(40)]
    with driving(make()) as remote:
        assert remote.transport == door
        got, expected = play(remote, actions, seed=3), play(local, actions, seed=3)
    assert_same(plain(got), plain(expected))


def test_every_kind_of_space_travels_both_ways(door: str) -> None:
    """SRV-24, VAL-1, VEC-7: nested observations and actions, with image, text and 0-d leaves."""
    local, served = Everything(), Everything()
    with driving(served) as remote:
        assert remote.observation_space == from_gymnasium_space(local.observation_space)
        assert remote.action_space == from_gymnasium_space(local.action_space)
        for seed in range(3):
            expected, _ = local.reset(seed=seed)
            observation, _ = remote.reset(seed=seed)
            for _ in range(4):
                assert_same(plain(observation), plain(expected))
                assert observation in local.observation_space
                action = local.action_space.sample()
                expected = local.step(action)[0]
                observation = remote.step(action)[0]
                assert_same(plain(served.actions[-1]), plain(action))


def test_the_env_gets_actions_it_may_keep_and_change() -> None:
    """SRV-24: int for Discrete, arrays in the declared dtype, str for Text, dict and tuple of them.

    The published server hands out read-only arrays; here each is writable and the env's own.
    """
    space = Dict(
        {
            "box": Box(-1, 1, (2,), "float32"),
            "keys": MultiBinary(2),
            "pair": Tuple([Discrete(5, start=1), Text(4)]),
        }
    )
    env = FunctionEnv(action_space=space)
    with driving(env) as remote:
        remote.reset()
        remote.step({"box": [0.5, 0], "keys": [1, 0], "pair": (2, "ab")})
        env.actions[0]["box"][:] = -1
        remote.step({"box": [0.5, 0], "keys": [1, 0], "pair": (2, "ab")})
    first, second = env.actions
    assert first["box"].tolist() == [-1, -1] and second["box"].tolist() == [0.5, 0]
    assert type(second) is dict and type(second["pair"]) is tuple
    assert type(second["pair"][0]) is int and second["pair"] == (2, "ab")
    assert (second["box"].dtype, second["keys"].dtype) == (np.float32, np.uint8)


def test_observations_are_writable_and_never_alias(door: str) -> None:
    """VAL-9, issue 2: the caller owns what it is given; later steps do not touch it."""
    with driving(Everything()) as remote:
        kept = [remote.reset(seed=0)[0]]
        kept += [remote.step(remote.action_space.sample())[0] for _ in range(3)]
        copies = [{k: np.copy(o[k]) for k in ("image", "state", "scale")} for o in kept]
        for observation in kept:
            arrays = [observation[k] for k in ("image", "state", "scale", "pad", "keys")]
            assert all(a.flags.writeable and a.flags.c_contiguous for a in arrays)
        kept[0]["image"][:] = 0
        copies[0]["image"][:] = 0
        remote.step(remote.action_space.sample())
        for observation, copied in zip(kept, copies, strict=True):
            for key, value in copied.items():
                np.testing.assert_array_equal(observation[key], value)
        for i, one in enumerate(kept):
            for other in kept[i + 1 :]:
                assert not np.shares_memory(one["image"], other["image"])


def test_an_env_may_reuse_its_observation_buffer() -> None:
    """VAL-9: what was sent stays as it was, though the env writes over its own array."""
    buffer = np.zeros(4, np.float32)

    def step(action: Any) -> Any:
        buffer[0] += 1
        return buffer, 0.0, False, False, {}

    env = FunctionEnv(step=step, reset=lambda seed: (buffer, {}))
    with driving(env) as remote:
        first = remote.reset()[0]
        later = [remote.step([0, 0])[0] for _ in range(3)]
    assert first[0] == 0 and [o[0] for o in later] == [1, 2, 3]


def test_native_values_are_tensors(door: str) -> None:
    """VAL-1: the framework-free client hands out Tensor leaves, and takes them as actions."""
    env = FunctionEnv(observation_space=Dict({"a": Box(-9, 9, (4,)), "n": Discrete(3)}))
    env.observation = lambda: {"a": np.arange(4, dtype=np.float32), "n": 1}  # type: ignore[method-assign]
    with serving(env) as server, rlmesh.RemoteEnv(server.address) as remote:
        observation, _ = remote.reset()
        assert type(observation["a"]) is Tensor and observation["n"] == 1
        assert np.asarray(observation["a"]).tolist() == [0, 1, 2, 3]
        sample = remote.action_space.sample()
        assert type(sample) is Tensor and sample in remote.action_space
        remote.step(sample)
        assert env.actions[0].tolist() == np.asarray(sample).tolist()


def test_info_gains_the_episode(door: str) -> None:
    """CLI-5, CLI-6: episode_ids always, completed_episodes at the end of an episode."""
    with driving(Countdown(2)) as remote:
        (first,) = remote.reset()[1]["episode_ids"]
        assert uuid.UUID(first).version == 7
        info = remote.step(1)[4]
        assert info["episode_ids"] == [first] and "completed_episodes" not in info
        info = remote.step(1)[4]
        assert (info["episode_ids"], info["completed_episodes"]) == ([first], 1)
        (second,) = remote.reset()[1]["episode_ids"]
        assert second != first


def test_an_envs_own_info_keys_win() -> None:
    """CLI-6, MET-5: the env's own episode_ids and completed_episodes are left alone."""
    own = {"episode_ids": "mine", "completed_episodes": -1}
    env = FunctionEnv(
        step=lambda action: (np.zeros(4), 0.0, True, False, dict(own)),
        reset=lambda seed: (np.zeros(4), {"episode_ids": 3}),
    )
    with driving(env) as remote:
        assert remote.reset()[1] == {"episode_ids": 3}
        assert remote.step([0, 0])[4] == own


def test_stepping_after_the_end_is_refused(door: str) -> None:
    """Issue 2: refused with a clear error; the env is not asked, and a reset goes on."""
    with driving(Countdown(1)) as remote:
        remote.reset()
        assert remote.step(0)[2]
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"after the episode ended.*call reset\(\)"):
                remote.step(0)
        remote.reset()
        assert remote.step(0)[0][1] == 1


def test_stepping_before_the_first_reset_is_the_envs_to_judge() -> None:
    """SRV-25: the client allows it."""
    with driving(FunctionEnv()) as remote:
        observation, *_, info = remote.step([0, 0])
        assert observation[0] == 1 and info["episode_ids"] == [""]


def test_reset_passes_only_what_is_given() -> None:
    """SRV-5: an env whose reset knows no seed and no options keeps working without them."""
    given: list[dict[str, Any]] = []

    class Old(FunctionEnv):
        def reset(self, **arguments: Any) -> Any:
            given.append(arguments)
            return self.observation(), {}

    with driving(Old()) as remote:
        remote.reset()
        remote.reset(seed=-5)
        remote.reset(options={})
        remote.reset(
            seed=np.int64(7), options={"a": {"b": [1, None, np.float32(0.5)]}, "c": np.arange(2)}
        )
        with pytest.raises(TypeError, match="seed must be an int, got str"):
            remote.reset(seed="1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="seed must fit int64"):
            remote.reset(seed=2**63)
        with pytest.raises(TypeError, match=r"reset option 'a\.b'.*object"):
            remote.reset(options={"a": {"b": object()}})
    assert given == [
        {},
        {"seed": -5},
        {"options": {}},
        {"seed": 7, "options": {"a": {"b": [1, None, 0.5]}, "c": [0, 1]}},
    ]


def test_reset_may_return_a_bare_observation() -> None:
    """SRV-3: anything but (observation, mapping) is the observation, and info is empty."""
    pair = Tuple([Box(-1, 1, (1,)), Dict({"a": Discrete(3)})])
    bare = (np.zeros(1, np.float32), {"a": 2})
    cases: list[tuple[Any, Any, Any, dict[str, Any]]] = [
        (Box(-1, 1, (2,)), [0, 0], np.zeros(2, np.float32), {}),
        (Dict({"a": Discrete(3)}), {"a": 1}, {"a": 1}, {}),
        (pair, bare, bare, {}),
        (pair, (bare, {"k": 1}), bare, {"k": 1}),
        (Tuple([Discrete(2), Discrete(2)]), (1, 0), (1, 0), {}),
        (Discrete(3), (2, {"k": 1}), 2, {"k": 1}),
    ]
    for space, returned, observation, info in cases:
        env = FunctionEnv(observation_space=space, reset=lambda seed, r=returned: r)
        with driving(env) as remote:
            got, extra = remote.reset()
            assert_same(got, observation)
            assert without_ids(extra) == info


def test_step_may_return_four_parts() -> None:
    """SRV-4: done of a legacy step is terminated."""
    results: list[Any] = [
        (np.zeros(4), 1, False, {"k": 1}),
        [np.zeros(4), 1, False, True, {"k": 1}],
    ]
    for returned, flags in zip(results, [(False, False), (False, True)], strict=True):
        env = FunctionEnv(step=lambda action, r=returned: r)
        with driving(env) as remote:
            remote.reset()
            _, reward, terminated, truncated, info = remote.step([0, 0])
            assert (reward, terminated, truncated, info["k"]) == (1.0, *flags, 1)
    env = FunctionEnv(step=lambda action: (np.zeros(4), 1.0, True, {}))
    with driving(env) as remote:
        remote.reset()
        assert remote.step([0, 0])[2:4] == (True, False)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "4- or 5-tuple"),
        ((1, 2, 3), "4- or 5-tuple"),
        ((np.zeros(4), None, False, False, {}), "one number as reward, got NoneType"),
        ((np.zeros(4), [1, 2], False, False, {}), "one number as reward"),
        ((np.zeros(4), 0.0, False, False, [1]), "a mapping as info, got list"),
        ((np.zeros(5), 0.0, False, False, {}), "observation: expected float32[4], got float64[5]"),
        ((None, 0.0, False, False, {}), "observation: expected float32[4], got None"),
    ],
)
def test_a_wrong_step_result_is_an_error_of_the_env(returned: Any, words: str) -> None:
    """SRV-4, CNF-1: the client learns what the env did wrong; the server serves the next client."""
    results = [returned, (np.zeros(4), 1.0, False, False, {})]
    env = FunctionEnv(step=lambda action: results.pop(0))
    with serving(env) as server:
        with RemoteEnv(server.address) as remote:
            remote.reset()
            with pytest.raises(EnvironmentException) as caught:
                remote.step([0, 0])
            assert words in str(caught.value)
            with pytest.raises(ConnectionError):
                remote.step([0, 0])
        with RemoteEnv(server.address) as remote:
            remote.reset()
            assert remote.step([0, 0])[1] == 1.0


@pytest.mark.parametrize(
    "reward", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), np.array([2.0]), np.array([[2]])]
)
def test_a_reward_is_one_number_in_any_dress(reward: Any) -> None:
    """VAL-11: numpy scalars and arrays of one element are numbers."""
    env = FunctionEnv(step=lambda a: (np.zeros(4), reward, np.bool_(False), np.array([True]), None))
    with driving(env) as remote:
        remote.reset()
        _, got, terminated, truncated, info = remote.step([0, 0])
    assert (type(got), got) == (float, 2.0)
    assert (terminated, truncated) == (False, True) and without_ids(info) == {}


def test_client_properties(door: str) -> None:
    """CLI-4, CLI-8, SRV-16, SRV-17."""
    env = Countdown(render_mode="rgb_array")
    with serving(env) as server, RemoteEnv(server.address) as remote:
        assert remote.address == server.address
        assert remote.transport == door
        assert uuid.UUID(remote.env_id).version == 7
        with RemoteEnv(server.address) as other:
            assert other.env_id != remote.env_id
        assert dict(remote.metadata) == {"render_modes": ["rgb_array"], "render_fps": 4}
        assert remote.render_mode == "rgb_array"
        assert remote.selected_workflow_edition == "2026.06"
        expected = from_gymnasium_space(env.observation_space)
        assert remote.observation_space == remote.observation_space_spec == expected
        assert remote.action_space == remote.action_space_spec == Discrete(5)
        assert type(remote.observation_space.sample()) is np.ndarray
        assert remote.env_contract == server.env_contract
        assert server.spec is server.env_contract
        assert repr(remote) == f"RemoteEnv(address='{server.address}')"
        assert not hasattr(remote, "num_envs") and not hasattr(remote, "spec")
        contract = remote.env_contract
        assert contract.env is contract.spec is contract
        assert (contract.id, contract.num_envs) == ("UnknownEnv-v1", 1)
        assert set(contract.to_dict()) == {
            *("id", "num_envs", "render_mode", "autoreset_mode", "metadata"),
            *("observation_space", "action_space"),
        }
        with pytest.raises(AttributeError):
            contract.id = "other"  # type: ignore[misc]
    with EnvServer(gymnasium.make("CartPole-v1")) as server:
        assert server.env_contract.id == "CartPole-v1"
        assert repr(server) == f"EnvServer(address='{server.address}')"
        assert repr(server.env_contract) == 'EnvContract(id="CartPole-v1", num_envs=1)'
        assert server.env_contract.render_mode is None


def test_an_address_in_parts(tmp_path: Path) -> None:
    """CLI-1, SRV-9: host and port, or path; something must be given."""
    with serving(Countdown()) as server:
        host, _, port = server.address.removeprefix("tcp://").rpartition(":")
        with RemoteEnv(host=host, port=int(port)) as remote:
            assert remote.address == server.address
    path = tmp_path / "env.sock"
    with serving(Countdown(), f"unix://{path}") as server, RemoteEnv(path=path) as remote:
        assert remote.address == server.address
    for arguments in ({}, {"host": "localhost"}, {"address": "1.2.3.4:5", "port": 6}):
        with pytest.raises(ValueError, match=r"address|port"):
            RemoteEnv(**arguments)  # type: ignore[arg-type]


def test_an_env_without_metadata() -> None:
    """CLI-4, SRV-2: only spaces, reset, step and close are required."""

    class Bare:
        observation_space = Discrete(3)
        action_space = Discrete(2)

        def reset(self) -> Any:
            return 0

        def step(self, action: int) -> Any:
            return action, 0.0, False, False, {}

        def close(self) -> None:
            pass

    with driving(Bare()) as remote:
        assert remote.metadata == {} and remote.render_mode is None
        assert remote.reset()[0] == 0
        assert remote.step(1)[0] == 1
        assert remote.render() is None


def test_metadata_travels(door: str, caplog: pytest.LogCaptureFixture) -> None:
    """MET-3: keys become text, numpy becomes plain, and what cannot travel is named in the log.

    The published server raises an unclear TypeError for a key that is no str.
    """
    env = FunctionEnv()
    env.metadata = {"fps": np.int64(7), 3: ("a", None), "fn": print, "deep": {"x": np.ones(2)}}
    with driving(env) as remote:
        assert dict(remote.metadata) == {"fps": 7, "3": ["a", None], "deep": {"x": [1.0, 1.0]}}
    assert [r for r in caplog.messages if "env metadata fn is not sent" in r]


def test_extensions_give_our_clients_the_exact_space() -> None:
    """SPC-17, issue 2: a 0-d Box and Text(min_length=0), which the published wire cannot say."""
    space = Tuple([Box(0, 1, ()), Text(4, min_length=0)])
    value = (np.array(0.5, np.float32), "")
    env = FunctionEnv(observation_space=space, reset=lambda seed: (value, {}))
    with driving(env) as remote:
        assert remote.observation_space == space
        assert_same(remote.reset()[0], value)


def test_rendering(door: str) -> None:
    """CLI-7, SRV-27: HWC uint8 frames as the env gives them, or None."""
    rng = np.random.default_rng(0)
    rgb, rgba = (rng.integers(0, 256, (5, 7, c), np.uint8) for c in (3, 4))
    grey = rng.integers(0, 256, (5, 7), np.uint8)
    frames: list[Any] = [rgb, rgba, grey, rgb[:, ::-1], [grey, rgb], [], None, rgb.tolist()]
    expected = [rgb, rgba, grey[:, :, None], rgb[:, ::-1], rgb, None, None]
    env = FunctionEnv(render=lambda: frames.pop(0))
    with driving(env) as remote:
        remote.reset()
        for frame in expected:
            got = remote.render()
            if frame is None:
                assert got is None
            else:
                assert_same(got, np.ascontiguousarray(frame))
                assert got.flags.writeable


def test_a_failed_render_ends_nothing() -> None:
    """SRV-27: an odd frame is refused by name, and the session goes on."""
    frames: list[Any] = ["ascii art", np.zeros((2, 2, 3)), np.zeros((2, 2, 5), np.uint8)]
    env = FunctionEnv(render=lambda: frames.pop(0))
    with driving(env) as remote:
        remote.reset()
        for _ in range(3):
            with pytest.raises(
                EnvironmentException, match=r"render failed: ValueError: render\(\)"
            ):
                remote.render()
        with pytest.raises(ValueError, match="env index"):
            remote.render(env_index=1)
        assert remote.step([0, 0])[0][0] == 1


def test_close_is_idempotent_and_final(door: str) -> None:
    """CLI-8: detaches, the server stays up; later calls are refused."""
    env = FunctionEnv()
    with serving(env) as server:
        remote = RemoteEnv(server.address)
        remote.reset()
        remote.close()
        remote.close()
        for call in (remote.reset, remote.render, lambda: remote.step([0, 0])):
            with pytest.raises(ConnectionError, match="not connected"):
                call()
        with RemoteEnv(server.address) as other:
            assert other.reset()[0][0] == 0
        assert not env.closed.is_set()
    assert env.closed.is_set()


def test_wrong_arity_is_named() -> None:
    """CLI-3: RemoteEnv and RemoteVectorEnv say which is the other."""
    with (
        serving([Countdown(), Countdown()]) as server,
        pytest.raises(ValueError, match=r"serves 2 environments\. Use RemoteVectorEnv instead"),
    ):
        RemoteEnv(server.address)
    with (
        serving(Countdown()) as server,
        pytest.raises(ValueError, match=r"serves a single environment\. Use RemoteEnv instead"),
    ):
        RemoteVectorEnv(server.address)


@pytest.mark.parametrize(
    ("break_it", "kind", "words"),
    [
        (lambda env: env.__dict__.update(step=None), TypeError, "env must have a 'step' method"),
        (lambda env: env.__dict__.update(reset=3), TypeError, "env must have a 'reset' method"),
        (lambda env: env.__dict__.update(close=None), TypeError, "env must have a 'close' method"),
        (
            lambda env: env.__dict__.update(action_space=None),
            TypeError,
            "env must have action_space",
        ),
        (
            lambda env: env.__dict__.update(
                observation_space=gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
            ),
            TypeError,
            "observation_space of FunctionEnv",
        ),
        (lambda env: env.__dict__.update(metadata=[1]), TypeError, "metadata of FunctionEnv"),
    ],
)
def test_an_object_that_is_no_env_is_refused_at_construction(
    break_it: Callable[[Any], None], kind: type[Exception], words: str
) -> None:
    """SRV-2, SRV-10: TypeError that names what is missing."""
    env = FunctionEnv()
    break_it(env)
    with pytest.raises(kind) as caught:
        EnvServer(env)
    assert words in str(caught.value)


def test_a_class_is_no_env() -> None:
    """SRV-10: the commonest slip has its own words."""
    with pytest.raises(TypeError, match="got the class Countdown; construct it first"):
        EnvServer(Countdown)
    factory = type("Some", (rlmesh.EnvFactory,), {"make": lambda self: Countdown()})()
    with pytest.raises(TypeError, match=r"got Some; pass what its make\(\) returns"):
        EnvServer(factory)
    with pytest.raises(TypeError, match=r"tags must be rlmesh\.adapters\.EnvTags, got dict"):
        EnvServer(Countdown(), tags={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="env must have a 'step' method, got int"):
        EnvServer(3)
