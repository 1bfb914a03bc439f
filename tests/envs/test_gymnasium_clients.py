"""`rlmesh.gymnasium`: remote envs where a gymnasium env is expected, in 0.29 and the newest."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space
from support import FunctionEnv, python_child, serving
from support.trees import assert_same
from support.zoo import Countdown, Everything, countdowns

import rlmesh.numpy
from rlmesh import EnvironmentException
from rlmesh.gymnasium import RemoteEnv, RemoteVectorEnv
from rlmesh.spaces import Box

GYMNASIUM = tuple(int(n) for n in gymnasium.__version__.split(".")[:2])
MODES = ["NextStep", "SameStep", "Disabled"] if GYMNASIUM >= (1, 1) else ["SameStep"]


def vector(mode: str, *lengths: int, **options: Any) -> Any:
    keywords = {"autoreset_mode": mode} if GYMNASIUM >= (1, 1) else {}
    return SyncVectorEnv(countdowns(*lengths, **options), **keywords)


@contextmanager
def driving(env: Any) -> Iterator[RemoteEnv]:
    with serving(env) as server:
        remote = RemoteEnv(server.address)
        try:
            yield remote
        finally:
            remote.close()


@contextmanager
def driving_lanes(env: Any) -> Iterator[RemoteVectorEnv]:
    with serving(env) as server:
        remote = RemoteVectorEnv(server.address)
        try:
            yield remote
        finally:
            remote.close()


CHECKED: dict[str, Callable[[], Any]] = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "Pendulum": lambda: gymnasium.make("Pendulum-v1"),
    "Countdown": lambda: Countdown(5, render_mode="rgb_array"),
    "Everything": Everything,
}


@pytest.mark.parametrize("name", CHECKED)
def test_check_env_passes(door: str, name: str) -> None:
    """Issue 2: gymnasium's own checker finds nothing but what it says of the env itself."""
    with driving(CHECKED[name]()) as remote, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(remote)
    allowed = ("not having a spec", "is -infinity", "is infinity", "symmetric and normalized")
    assert [str(w.message) for w in said if not any(a in str(w.message) for a in allowed)] == []


def test_it_is_what_gymnasium_takes_for_an_env() -> None:
    """Issue 2, CLI-12 done better: real subclasses, gymnasium spaces, metadata, render mode."""
    twin = Countdown(render_mode="rgb_array")
    with driving(Countdown(render_mode="rgb_array")) as remote:
        assert isinstance(remote, gymnasium.Env) and remote.unwrapped is remote
        assert remote.observation_space == twin.observation_space
        assert remote.action_space == twin.action_space
        assert isinstance(remote.observation_space, gymnasium.Space)
        assert remote.metadata == dict(twin.metadata)
        assert (remote.render_mode, remote.spec) == ("rgb_array", None)
        assert remote.remote.env_contract.id == "UnknownEnv-v1"
        assert str(remote) == repr(remote) == f"RemoteEnv(address={remote.remote.address!r})"
    with driving(FunctionEnv()) as remote:
        assert remote.metadata == {"render_modes": []}
    everything = Everything()
    with driving(Everything()) as remote:
        assert remote.observation_space == everything.observation_space
        assert remote.action_space == everything.action_space


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        (RemoteEnv, rlmesh.numpy.RemoteEnv),
        (RemoteVectorEnv, rlmesh.numpy.RemoteVectorEnv),
    ],
)
def test_the_constructors_are_alike(ours: Any, numpys: Any) -> None:
    """Issue 2: same constructor arguments as the other clients."""
    assert inspect.signature(ours) == inspect.signature(numpys)


def test_it_steps_like_the_env_itself() -> None:
    """CLI-5, CLI-6: values and infos are the env's own, nothing is added."""
    local = Countdown(3)
    with driving(Countdown(3)) as remote:
        assert_same(remote.reset(seed=4)[0], local.reset(seed=4)[0])
        fresh, _ = gymnasium.utils.seeding.np_random(4)
        assert remote.np_random.bit_generator.state == fresh.bit_generator.state
        for action in (1, 2, 3):
            got, expected = remote.step(action), local.step(action)
            assert_same(got[0], expected[0])
            assert got[1:4] == expected[1:4]
            assert list(got[4]) == sorted(expected[4])
            for key, value in expected[4].items():
                assert_same(got[4][key], value)
        with pytest.raises(RuntimeError, match="after the episode ended"):
            remote.step(0)
        _, info = remote.reset(options={"length": 1})
        assert list(info) == ["drawn"]
        assert remote.step(0)[2] is True


def test_rendering() -> None:
    """CLI-7: a frame; in the list modes a list with the newest."""
    with driving(Countdown(render_mode="rgb_array")) as remote:
        remote.reset()
        remote.step(0)
        assert_same(remote.render(), np.full((2, 3, 3), 1, np.uint8))
    frames: list[Any] = [[np.zeros((1, 1, 3), np.uint8), np.ones((1, 1, 3), np.uint8)], []]
    env = FunctionEnv(render=lambda: frames.pop(0))
    env.render_mode = "rgb_array_list"
    with driving(env) as remote:
        (frame,) = remote.render()
        assert frame.max() == 1
        assert remote.render() == []
    with driving(Countdown()) as remote:
        assert remote.render() is None


def test_closing() -> None:
    """CLI-8: idempotent, by ``with`` too; the next client is served."""
    with serving(Countdown()) as server:
        with RemoteEnv(server.address) as remote:
            remote.reset()
        remote.close()
        with pytest.raises(ConnectionError, match="not connected"):
            remote.reset()
        with RemoteEnv(server.address) as remote:
            remote.reset()


def test_wrong_arity() -> None:
    """CLI-3: as for the other clients; what failed to construct can be collected in peace."""
    with (
        serving([Countdown(), Countdown()]) as server,
        pytest.raises(ValueError, match="Use RemoteVectorEnv instead"),
    ):
        RemoteEnv(server.address)
    with (
        serving(Countdown()) as server,
        pytest.raises(ValueError, match="Use RemoteEnv instead"),
    ):
        RemoteVectorEnv(server.address)


def test_errors_of_the_env_keep_their_words() -> None:
    """SRV-26: with the remote traceback in the notes."""

    def step(action: Any) -> Any:
        raise KeyError("boom")

    with driving(FunctionEnv(step=step)) as remote:
        remote.reset()
        with pytest.raises(EnvironmentException, match="KeyError: 'boom'") as caught:
            remote.step(np.zeros(2))
        assert any("Remote traceback" in note for note in caught.value.__notes__)


def test_notes_on_values_become_warnings() -> None:
    """CNF-3: not in the info, which must repeat with its seed."""
    env = FunctionEnv(observation_space=Box(-1, 1, (4,)))
    env.observation = lambda: np.full(4, 2.0)  # type: ignore[method-assign]
    with driving(env) as remote:
        with pytest.warns(UserWarning, match=r"range: observation\[0\]: 2\.0 is outside"):
            _, info = remote.reset()
        assert info == {}
        assert remote.step(np.zeros(2))[4] == {}
    lanes = [FunctionEnv(step=lambda a: (np.zeros(4), 0, False, False, {"x": object()}))] * 2
    with driving_lanes(lanes) as remote:
        remote.reset()
        with pytest.warns(UserWarning, match="info_dropped: info value x"):
            infos = remote.step(np.zeros((2, 2)))[4]
        assert infos == {} or "rlmesh" not in str(infos)


def test_single_wrappers() -> None:
    """Issue 2: statistics, time limit, flattening, normalising."""
    wrappers = gymnasium.wrappers
    with driving(Countdown(4)) as remote:
        env = wrappers.RecordEpisodeStatistics(remote)
        env.reset(seed=0)
        infos = [env.step(action)[4] for action in (1, 2, 3, 4)]
        assert "episode" not in infos[2]
        episode = infos[3]["episode"]
        assert (np.asarray(episode["r"]).item(), np.asarray(episode["l"]).item()) == (10.0, 4)
        limited = wrappers.TimeLimit(remote, max_episode_steps=2)
        limited.reset()
        assert limited.step(0)[2:4] == (False, False)
        assert limited.step(0)[2:4] == (False, True)
        normal = wrappers.NormalizeObservation(remote)
        assert np.isfinite(normal.reset()[0]).all() and np.isfinite(normal.step(1)[0]).all()
    with driving(Everything()) as remote:
        flat = wrappers.FlattenObservation(remote)
        observation, _ = flat.reset(seed=0)
        assert observation in flat.observation_space
        assert observation.shape == flat.observation_space.shape
        assert flat.step(flat.action_space.sample())[0] in flat.observation_space


def test_a_served_remote_env_is_an_env() -> None:
    """A remote env can itself be served: a relay."""
    with driving(Countdown(2)) as near, driving(near) as far:
        far.reset(seed=3)
        assert far.step(4)[0].tolist() == [Countdown().reset(seed=3)[0][0], 1, 4]


# Vector


def strictly(tree: Any) -> Any:
    """Return infos with sorted keys and numpy's int, bool and float kinds as they arrive."""
    if isinstance(tree, dict):
        return {key: strictly(value) for key, value in sorted(tree.items())}
    if isinstance(tree, np.ndarray) and tree.dtype == object:
        return ["objects", [strictly(item) for item in tree]]
    return tree.item() if isinstance(tree, np.generic) else tree


@pytest.mark.parametrize("mode", MODES)
def test_it_is_the_vector_env_it_serves(mode: str) -> None:
    """Issue 2, VEC-8, VEC-10: the same numbers, infos with masks and arrays, in every mode."""
    local = vector(mode, 2, 3)
    with driving_lanes(vector(mode, 2, 3)) as remote:
        assert isinstance(remote, gymnasium.vector.VectorEnv)
        assert remote.num_envs == 2
        for name in ("observation_space", "action_space"):
            single = f"single_{name}"
            assert getattr(remote, single) == getattr(local, single)
            assert getattr(remote, name) == getattr(local, name)
        declared = remote.metadata["autoreset_mode"]
        assert declared == (gymnasium.vector.AutoresetMode(mode) if GYMNASIUM >= (1, 1) else mode)
        assert remote.spec is None
        results: list[Any] = []
        for envs in (local, remote):
            rng = np.random.default_rng(0)
            said: list[Any] = [envs.reset(seed=9)]
            for _ in range(10):
                said.append(envs.step(rng.integers(0, 5, 2)))
                ended = said[-1][2] | said[-1][3]
                if mode == "Disabled" and ended.any():
                    said.append(envs.reset(options={"reset_mask": ended}))
            results.append(said)
        for got, expected in zip(results[1], results[0], strict=True):
            for g, e in zip(got[:-1], expected[:-1], strict=True):
                assert_same(g, e)
            assert got[0] in remote.observation_space
            if GYMNASIUM < (1, 0) and "place" in expected[-1]:
                # Before 1.0 an array of arrays; the newer, stacked form arrives.
                rows = [p if p is not None else np.zeros(2, "i2") for p in expected[-1]["place"]]
                expected[-1]["place"] = np.stack(rows)
            assert_same(strictly(got[-1]), strictly(expected[-1]))


def test_lanes_give_gymnasiums_infos() -> None:
    """VEC-10: a list of envs looks as SyncVectorEnv would have it."""
    if GYMNASIUM < (1, 1):
        envs, twin = [Countdown(9), Countdown(9)], vector("SameStep", 9, 9)
    else:
        envs, twin = [Countdown(1), Countdown(2)], vector("Disabled", 1, 2)
    with driving_lanes(envs) as remote:
        assert_same(strictly(remote.reset(seed=1)[1]), strictly(twin.reset(seed=1)[1]))
        got, expected = strictly(remote.step([1, 2])[4]), strictly(twin.step([1, 2])[4])
        for key in ("steps", "half", "even", "name", "_name", "_steps"):
            assert_same(got[key], expected[key])
        if GYMNASIUM >= (1, 1):
            assert_same(got["is_success"], np.array([True, False]))
            assert_same(got["_is_success"], np.array([True, False]))
            assert_same(got["place"], expected["place"])


def test_an_info_that_only_one_lane_has() -> None:
    """VEC-10: zeros beside the mask for numbers, None for anything else."""
    infos: list[dict[str, Any]] = [
        {"n": 7, "x": 0.5, "b": True, "a": np.arange(2, dtype=np.int8), "s": "text", "m": 1},
        {"m": "mixed"},
    ]
    envs = [
        FunctionEnv(step=lambda a, i=info: (np.zeros(4), 0.0, False, False, i)) for info in infos
    ]
    with driving_lanes(envs) as remote:
        remote.reset()
        got = remote.step(np.zeros((2, 2)))[4]
        assert_same(got["n"], np.array([7, 0]))
        assert_same(got["x"], np.array([0.5, 0.0]))
        assert_same(got["b"], np.array([True, False]))
        assert_same(got["a"], np.array([[0, 1], [0, 0]], np.int8))
        assert_same(got["s"], np.array(["text", None], object))
        assert_same(got["m"], np.array([1, "mixed"], object))
        assert_same(got["_n"], np.array([True, False]))
        assert_same(got["_m"], np.array([True, True]))


def test_bytes_of_multi_binary() -> None:
    """SPC-3: Gymnasium's MultiBinary is int8; a server may declare uint8, as the published does."""
    space = rlmesh.spaces.Dict({"keys": rlmesh.spaces.MultiBinary(3)})
    env = FunctionEnv(observation_space=space, reset=lambda seed: ({"keys": [1, 0, 1]}, {}))
    with driving(env) as remote:
        observation, _ = remote.reset()
        assert observation in remote.observation_space
        assert_same(observation["keys"], np.array([1, 0, 1], np.int8))
    with driving_lanes([env, env]) as lanes:
        observations, _ = lanes.reset()
        assert observations in lanes.observation_space


def test_text_is_batched_as_gymnasium_does() -> None:
    """VEC-7: a tuple of strings, a member of the batched space."""
    keywords = {"autoreset_mode": "NextStep"} if GYMNASIUM >= (1, 1) else {}
    local = SyncVectorEnv([Everything] * 2, **keywords)
    with driving_lanes(SyncVectorEnv([Everything] * 2, **keywords)) as remote:
        observations, _ = remote.reset(seed=0)
        expected, _ = local.reset(seed=0)
        assert type(observations["task"]) is tuple
        assert observations["task"] == tuple(expected["task"])
        assert observations in remote.observation_space
        actions = remote.action_space.sample()
        assert remote.step(actions)[0] in remote.observation_space
    plain = batch_space(gymnasium.spaces.Text(3), 2)
    env = FunctionEnv(observation_space=rlmesh.spaces.Text(3), reset=lambda seed: ("ab", {}))
    with driving_lanes([env, env]) as remote:
        assert remote.reset()[0] == ("ab", "ab") and ("ab", "ab") in plain


def test_vector_render_and_call() -> None:
    """VEC-15: a frame a lane; nothing else of a served env can be called."""
    lanes = [Countdown(render_mode="rgb_array"), Countdown(render_mode="rgb_array")]
    with driving_lanes(lanes) as remote:
        remote.reset()
        remote.step([0, 0])
        for frames in (remote.render(), remote.call("render")):
            assert len(frames) == 2
            for frame in frames:
                assert_same(frame, np.full((2, 3, 3), 1, np.uint8))
        with pytest.raises(AttributeError, match="cannot be reached from here"):
            remote.call("length")
    with driving_lanes([Countdown(), Countdown()]) as remote:
        assert remote.render() is None and remote.call("render") == ()


def test_vector_closing_and_repr() -> None:
    """CLI-8."""
    with serving([Countdown(), Countdown()]) as server:
        remote = RemoteVectorEnv(server.address)
        assert repr(remote) == f"RemoteVectorEnv(address={server.address!r}, num_envs=2)"
        assert not remote.closed
        remote.reset()
        remote.close()
        remote.close()
        assert remote.closed
        with pytest.raises(ConnectionError, match="not connected"):
            remote.step([0, 0])


def test_split_steps() -> None:
    """Gymnasium 0.29's halves of a step: many endpoints can work at the same time."""
    with driving_lanes([Countdown()] * 2) as one, driving_lanes([Countdown()] * 2) as other:
        for remote in (one, other):
            remote.reset()
        for remote, actions in ((one, [1, 2]), (other, [3, 4])):
            remote.step_async(actions)
        assert other.step_wait()[1].tolist() == [3, 4]
        assert one.step_wait()[1].tolist() == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_vector_statistics(mode: str) -> None:
    """Issue 2: RecordEpisodeStatistics adds up each lane's episodes.

    Over a local SyncVectorEnv it does not, once a lane was reset by mask: that one takes the mask
    out of the options before the wrapper has seen it.
    """
    wrap = (
        gymnasium.wrappers.vector.RecordEpisodeStatistics
        if GYMNASIUM >= (1, 0)
        else gymnasium.wrappers.RecordEpisodeStatistics
    )
    with driving_lanes(vector(mode, 2, 3)) as remote, warnings.catch_warnings():
        if GYMNASIUM < (1, 0):
            warnings.simplefilter("ignore")  # it asks its wrappers in deprecated ways
        wrapped = wrap(remote)
        rng = np.random.default_rng(3)
        totals, expected = np.zeros(2), []
        wrapped.reset(seed=1)
        for _ in range(12):
            _, rewards, terminated, truncated, infos = wrapped.step(rng.integers(0, 5, 2))
            ended = terminated | truncated
            totals += rewards
            if ended.any():
                np.testing.assert_array_equal(infos["episode"]["r"][ended], totals[ended])
                assert infos["_episode"].tolist() == ended.tolist()
                expected += totals[ended].tolist()
                totals[ended] = 0
                if mode == "Disabled":
                    wrapped.reset(options={"reset_mask": ended})
        assert [float(r) for r in wrapped.return_queue] == expected and len(expected) >= 6


@pytest.mark.parametrize("mode", MODES)
def test_infos_as_lists(mode: str) -> None:
    """VEC-10: gymnasium's converter to one dict a lane takes our infos."""
    vectors = gymnasium.wrappers.vector if GYMNASIUM >= (1, 0) else None
    wrap = vectors.DictInfoToList if vectors else gymnasium.wrappers.VectorListInfo
    with driving_lanes(vector(mode, 2, 9)) as remote, warnings.catch_warnings():
        if GYMNASIUM < (1, 0):
            warnings.simplefilter("ignore")
        wrapped = wrap(remote)
        wrapped.reset(seed=1)
        infos = wrapped.step(np.array([3, 4]))[4]
        assert [info["steps"] for info in infos] == [1, 1]
        assert [info["place"].tolist() for info in infos] == [[1, 3], [1, 4]]
        assert [info["name"] for info in infos] == ["step 1", "step 1"]


def test_a_trained_eye_sees_no_difference_between_copies() -> None:
    """The observations are the caller's: deep copies and writes harm nothing."""
    with driving(Everything()) as remote:
        observation, _ = remote.reset(seed=0)
        kept = copy.deepcopy(observation)
        observation["image"][:] = 0
        again, _ = remote.reset(seed=0)
        np.testing.assert_array_equal(again["image"], kept["image"])


def test_without_gymnasium_the_import_says_what_to_install() -> None:
    """Issue 2, design section 9: ImportError with the install line; the rest works without."""
    code = """
import sys
sys.modules["gymnasium"] = None
import rlmesh, rlmesh.numpy
try:
    import rlmesh.gymnasium
except ImportError as exc:
    print(exc)
server = rlmesh.EnvServer([type("E", (), dict(
    observation_space=rlmesh.spaces.Discrete(2), action_space=rlmesh.spaces.Discrete(2),
    reset=lambda self: 0, step=lambda self, a: (a, 0.0, False, False, {}), close=lambda self: None,
))() for _ in range(2)])
server.start()
with rlmesh.numpy.RemoteVectorEnv(server.address) as remote:
    print(remote.metadata["autoreset_mode"], remote.reset()[0].tolist())
server.shutdown()
"""
    with python_child(code) as child:
        assert "pip install 'rlmesh[gymnasium]'" in child.line()
        assert child.line() == "Disabled [0, 0]"
        assert child.wait() == 0
