"""What is asked for: impossible arguments are refused before anything connects; budgets, seeds and
caps count as the seed page says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import OpenLoop, Walk, feedback
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from support import serving
from traces import numbers

import rlmesh
import rlmesh.evals.lanes
from rlmesh.numpy import Model, RemoteEnv

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"execution_horizon": 0}, ValueError, "execution_horizon must be >= 1, got 0"),
    ({"execution_horizon": -3}, ValueError, "execution_horizon must be >= 1, got -3"),
    ({"execution_horizon": 1025}, ValueError, "execution_horizon must be <= 1024, got 1025"),
    ({"execution_horizon": True}, TypeError, "execution_horizon must be an int, got True"),
    ({"execution_horizon": 2.5}, TypeError, "execution_horizon must be an int, got 2.5"),
    ({"execution_horizon": "4"}, TypeError, "execution_horizon must be an int, got '4'"),
    ({"execution_horizon": None}, TypeError, "execution_horizon must be an int, got None"),
    ({"seeds": 3}, TypeError, "seeds must be ints, e.g. range(50), got int"),
    ({"seeds": "123"}, TypeError, "seeds must be ints, e.g. range(50), got str"),
    ({"seeds": [1, 2.0]}, TypeError, "seed must be an int, got float"),
    ({"seeds": [True]}, TypeError, "seed must be an int, got bool"),
    ({"seeds": [None]}, TypeError, "seed must be an int, got NoneType"),
    ({"seeds": ["1"]}, TypeError, "seed must be an int, got str"),
    ({"seeds": np.array([1.0])}, TypeError, "seed must be an int, got float"),
    ({"seeds": [2**63]}, ValueError, "seed must fit int64, got 9223372036854775808"),
    ({"seeds": [-(2**63) - 1]}, ValueError, "seed must fit int64"),
    ({"seeds": []}, ValueError, "seeds is empty"),
    ({"seeds": iter(())}, ValueError, "seeds is empty"),
    ({"seeds": [], "max_episodes": 3}, ValueError, "seeds is empty"),
    ({"max_episodes": -1}, ValueError, "max_episodes must be 0 or more, got -1"),
    ({"max_episodes": 1.5}, TypeError, "max_episodes must be an int, got float"),
    ({"max_episodes": True}, TypeError, "max_episodes must be an int, got bool"),
    ({"max_episodes": "3"}, TypeError, "max_episodes must be an int, got str"),
    ({"episodes": -1}, ValueError, "max_episodes must be 0 or more, got -1"),
    ({"episodes": 2, "max_episodes": 3}, ValueError, "episodes=2 is another name of"),
    ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be 1 or more, got 0"),
    ({"max_episode_steps": 2.0}, TypeError, "max_episode_steps must be an int, got 2.0"),
    ({"max_episode_steps": True}, TypeError, "max_episode_steps must be an int, got True"),
    ({"max_episode_seconds": 0}, ValueError, "max_episode_seconds must be finite and above 0"),
    ({"max_episode_seconds": -1.0}, ValueError, "max_episode_seconds must be finite and above 0"),
    ({"max_episode_seconds": float("nan")}, ValueError, "must be finite and above 0, got nan"),
    ({"max_episode_seconds": float("inf")}, ValueError, "must be finite and above 0, got inf"),
    ({"max_episode_seconds": "9"}, TypeError, "max_episode_seconds must be a number, got '9'"),
    ({"prefetch_lead": -1}, ValueError, "prefetch_lead must be 0 or more, got -1"),
    ({"prefetch_lead": 1.0}, TypeError, "prefetch_lead must be an int, got 1.0"),
    ({"retries": -1}, ValueError, "retries must be 0 or more, got -1"),
    ({"retries": True}, TypeError, "retries must be an int, got True"),
    ({"max_batch": 0}, ValueError, "max_batch must be 1 or more, got 0"),
    ({"batch_wait_ms": -0.1}, ValueError, "batch_wait_ms must be finite and 0 or more"),
    ({"batch_wait_ms": "fast"}, TypeError, "batch_wait_ms must be a number, got 'fast'"),
    ({"progress": "bar"}, TypeError, "progress must be True, False or None, got 'bar'"),
    ({"hooks": print}, TypeError, "hooks must be RunHooks or a list of them, got builtin"),
    ({"hooks": "bar"}, TypeError, "hooks must be RunHooks or a list of them, got str"),
    ({"hooks": [rlmesh.RunHooks()] * 2 + ["x"]}, TypeError, "hooks must be RunHooks or a list"),
    ({"journal": 3}, TypeError, "journal must be a path, got 3"),
]


@pytest.fixture
def port() -> Iterator[tuple[str, socket.socket]]:
    """An address, and the socket that hears whoever dials it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        host, number = listener.getsockname()
        yield f"{host}:{number}", listener


def heard(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


class Made(Model):
    """Must not be made."""

    def load(self) -> None:
        raise AssertionError("its weights were read")

    def predict(self, observation: Any) -> Any:
        return feedback(observation)


@pytest.mark.parametrize(("arguments", "kind", "message"), BAD)
def test_impossible_arguments_are_refused_before_anything_connects(
    arguments: dict[str, Any],
    kind: type[Exception],
    message: str,
    port: tuple[str, socket.socket],
) -> None:
    address, listener = port
    env = Walk()
    for where in (address, env, [env, address]):
        with pytest.raises(kind) as caught:
            rlmesh.run(Made, where, **arguments)
        assert message in str(caught.value)
    with pytest.raises(kind):
        Model(feedback).run(address, **arguments)
    if "execution_horizon" not in arguments:
        with rlmesh.session(feedback, address) as session, pytest.raises(kind):
            session.run(**arguments)
    assert env.resets == [] and not heard(listener)


@pytest.mark.parametrize(
    ("env", "kind", "message"),
    [
        (None, TypeError, "env must be an env with the gymnasium surface"),
        (3, TypeError, "or a list of these"),
        ({"a": Walk()}, TypeError, "env must be"),
        (Walk, TypeError, "got the class Walk; pass an instance"),
        ([], ValueError, "env is an empty list"),
        ([Walk(), None], TypeError, "got NoneType"),
        ("nowhere", ValueError, "nowhere"),
        ("127.0.0.1:port", ValueError, "port"),
        (["127.0.0.1:1", "http://"], ValueError, "http://"),
    ],
)
def test_impossible_envs_are_refused_before_anything_connects(
    env: Any, kind: type[Exception], message: str, port: tuple[str, socket.socket]
) -> None:
    listed = [port[0], *env] if isinstance(env, list) and env else env
    for make in (rlmesh.run, rlmesh.session):
        with pytest.raises(kind) as caught:
            make(Made, listed)
        assert message in str(caught.value)
    assert not heard(port[1])


def test_one_env_is_not_two_lanes() -> None:
    env = Walk()
    with pytest.raises(ValueError, match="lists the same env twice"):
        rlmesh.run(feedback, [Walk(), env, env])
    assert env.resets == []


def test_endpoints_must_share_their_spaces() -> None:
    other = Walk()
    other.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    with serving(other) as server, pytest.raises(ValueError, match="action_space of Walk is") as e:
        rlmesh.run(feedback, [Walk(), server.address])
    assert server.address in str(e.value) and "run them apart" in str(e.value)


@pytest.mark.parametrize("model", [None, 3, object(), "policy"])
def test_what_is_no_model_is_refused(model: Any) -> None:
    env = Walk()
    with pytest.raises(TypeError, match=r"[Mm]odel"):
        rlmesh.run(model, env)
    assert env.resets == []


def test_a_device_on_a_numpy_model_is_refused_before_an_episode() -> None:
    class Placed(Model):
        device = "cuda"

        def predict(self, observation: Any) -> Any:
            return feedback(observation)

    env = Walk()
    with pytest.raises(ValueError, match="requires a torch/jax model"):
        rlmesh.run(Placed, env)
    assert env.resets == []


# Episode accounting


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [
        ({}, [None]),
        ({"seeds": range(3)}, [0, 1, 2]),
        ({"seeds": [7, 7]}, [7, 7]),
        ({"seeds": np.array([4, -(2**63)])}, [4, -(2**63)]),
        ({"max_episodes": 3}, [None, None, None]),
        ({"episodes": 2}, [None, None]),
        ({"seeds": range(4), "max_episodes": 2}, [0, 1]),
        ({"seeds": range(2), "max_episodes": 4}, [0, 1, None, None]),
        ({"seeds": range(4), "episodes": 4, "max_episodes": 4}, [0, 1, 2, 3]),
        ({"seeds": [3], "max_episodes": 0}, []),
    ],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_episode_accounting(arguments: dict[str, Any], seeds: list[Any], lanes: int) -> None:
    """Seed page "Episode accounting": its three rules."""
    envs = [Walk() for _ in range(lanes)]
    result = rlmesh.run(feedback, envs if lanes > 1 else envs[0], **arguments)
    assert [episode.seed for episode in result.episodes] == seeds
    assert [type(episode.seed) for episode in result.episodes] == [type(seed) for seed in seeds]
    assert [episode.index for episode in result.episodes] == list(range(len(seeds)))
    resets = [seed for env in envs for seed in env.resets]
    assert sorted(resets, key=str) == sorted(seeds, key=str)


def test_an_iterator_of_seeds_is_taken_once() -> None:
    assert rlmesh.run(feedback, Walk(), seeds=iter([5, 6])).num_episodes == 2


def test_no_episodes_is_an_empty_result_that_touches_no_env(
    port: tuple[str, socket.socket],
) -> None:
    """RUN-3; hooks hear of the run, and the model of its end."""
    told: list[str] = []

    class Told(rlmesh.RunHooks):
        def on_run_start(self, context: rlmesh.RunContext) -> None:
            told.append("start")

        def on_run_end(self, result: rlmesh.RunResult) -> None:
            told.append(repr(result))

    model = Model(feedback, on_close=lambda: told.append("close"))
    result = rlmesh.run(model, port[0], max_episodes=0, hooks=Told(), close_env=True)
    assert (result.num_episodes, result.total_steps, result.mean_reward) == (0, 0, 0.0)
    assert (result.success_rate, result.success_interval) == (None, None)
    assert told == ["start", "RunResult(episodes=0, mean_reward=0.000, total_steps=0)", "close"]
    assert not heard(port[1])


# Caps

WORLDS = ["local", "remote", "list", "lanes", "NextStep", "SameStep", "Disabled"]


def make(stack: ExitStack, world: str, lengths: tuple[int, ...]) -> Any:
    envs = [Walk(lengths) for _ in range(1 if world in ("local", "remote") else 3)]
    if world == "local":
        return envs[0]
    if world == "list":
        return envs
    if world in ("remote", "lanes"):
        return stack.enter_context(serving(envs if world == "lanes" else envs[0])).address
    return SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=world)


class Last(rlmesh.RunHooks):
    """Each episode's last step."""

    def __init__(self) -> None:
        self.events: dict[int, rlmesh.StepEvent] = {}

    def on_step(self, event: rlmesh.StepEvent) -> None:
        assert event.episode not in self.events or not self.events[event.episode].truncated
        self.events[event.episode] = event


@pytest.mark.parametrize("world", WORLDS)
def test_a_step_cap_truncates_at_that_step(world: str) -> None:
    """RUN-4; a step that ends the episode by itself is not truncated by the cap."""
    last = Last()
    with ExitStack() as stack:
        env = make(stack, world, (9, 3, 2, 5))
        result = rlmesh.run(feedback, env, seeds=range(8), max_episode_steps=3, hooks=last)
    ends = [(e.steps, e.terminated, e.truncated) for e in result.episodes]
    assert ends == [(3, False, True), (3, True, False), (2, True, False), (3, False, True)] * 2
    assert [last.events[i].truncated for i in range(4)] == [True, False, False, True]
    assert [last.events[i].step for i in range(4)] == [2, 2, 1, 2]


@pytest.mark.parametrize("world", WORLDS)
def test_no_episode_is_longer_than_100000_steps(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed page, caution: a broken termination condition surfaces as a truncation."""
    assert rlmesh.evals.lanes.MAX_EPISODE_STEPS == 100_000
    monkeypatch.setattr(rlmesh.evals.lanes, "MAX_EPISODE_STEPS", 40)
    with ExitStack() as stack:
        env = make(stack, world, (10**9, 7))
        asked: list[dict[str, Any]] = [{}, {"max_episode_steps": 41}, {"max_episode_seconds": 1e9}]
        for cap in asked:
            result = rlmesh.run(OpenLoop(), env, seeds=range(4), execution_horizon=3, **cap)
            assert [(e.steps, e.truncated) for e in result.episodes] == [(40, True), (7, False)] * 2


@pytest.mark.parametrize("world", WORLDS)
def test_a_time_cap_truncates_at_the_first_step_after_it(world: str) -> None:
    with ExitStack() as stack:
        env = make(stack, world, (9, 1))
        result = rlmesh.run(feedback, env, seeds=range(4), max_episode_seconds=1e-9)
    ends = [(e.steps, e.terminated, e.truncated) for e in result.episodes]
    assert ends == [(1, False, True), (1, True, False)] * 2


# Vector envs that cannot reset a lane alone


class Foreign(VectorEnv):
    """Somebody's vector env: it knows nothing of masks, and its lanes go on by themselves.

    Lane i's episodes have i + 2 steps; an observation is [lane, episode of the lane, step].
    """

    def __init__(self, lanes: int, mode: str) -> None:
        self.num_envs = lanes
        self.metadata = {"autoreset_mode": AutoresetMode(mode)}
        self.single_observation_space = gymnasium.spaces.Box(0, 10**6, (3,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, lanes
        )
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, lanes)
        self.state = np.zeros((lanes, 3), np.float32)
        self.state[:, 0] = np.arange(lanes)
        self.over = np.zeros(lanes, bool)
        self.whole_resets = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert seed is None and options is None
        self.whole_resets += 1
        self.state[:, 1] += 1
        self.state[:, 2] = 0
        self.over[:] = False
        return self.state.copy(), {}

    def step(self, actions: Any) -> Any:
        rolled = self.over & (self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP)
        self.state[~rolled, 2] += 1
        self.state[rolled, 1] += 1
        self.state[rolled, 2] = 0
        self.over = (self.state[:, 2] >= self.state[:, 0] + 2) & ~rolled
        rewards = np.where(rolled, 0.0, self.state[:, 2])
        over, infos = self.over.copy(), {}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and over.any():
            infos = {"final_obs": np.array([*self.state], object), "_final_obs": over}
            infos["final_info"] = {"success": over, "_success": over}
            infos["_final_info"] = over
            self.state[over, 1] += 1
            self.state[over, 2] = 0
        elif over.any():
            infos = {"success": over, "_success": over}
        return self.state.copy(), rewards, over, np.zeros(self.num_envs, bool), infos


class Begins(rlmesh.RunHooks):
    """Checks that an episode begins with the first step of one of the env's."""

    def __init__(self) -> None:
        self.seen: dict[int, list[list[float]]] = {}

    def on_step(self, event: rlmesh.StepEvent) -> None:
        rows = self.seen.setdefault(event.episode, [])
        rows.append(event.observation.tolist())
        assert rows[-1] == [*rows[0][:2], event.step], "one lane, one episode, every step"
        assert event.reward == event.step + 1, "a roll is no step"


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("budget", [1, 3, 11])
@pytest.mark.parametrize("served", [False, True])
def test_lanes_that_go_on_by_themselves(mode: str, budget: int, served: bool) -> None:
    hook, env = Begins(), Foreign(3, mode)
    with ExitStack() as stack:
        where = stack.enter_context(serving(env)).address if served else env
        result = rlmesh.run(lambda observation: 0, where, max_episodes=budget, hooks=hook)
    assert result.num_episodes == budget
    for episode in result.episodes:
        lane = int(hook.seen[episode.index][0][0])
        assert (episode.steps, episode.terminated, episode.success) == (lane + 2, True, True)
    assert env.whole_resets == 1


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_caps_on_lanes_that_go_on_by_themselves(mode: str, cap: int) -> None:
    """A lane that was cut goes on, unscored, until its env begins another episode."""
    hook = Begins()
    result = rlmesh.run(
        lambda observation: 0, Foreign(3, mode), max_episodes=9, max_episode_steps=cap, hooks=hook
    )
    assert result.num_episodes == 9
    for episode in result.episodes:
        lane = int(hook.seen[episode.index][0][0])
        assert episode.steps == min(lane + 2, cap)
        assert (episode.terminated, episode.truncated) == (lane + 2 <= cap, lane + 2 > cap)


def test_seeds_on_lanes_that_cannot_be_reset_alone_are_refused_by_name() -> None:
    env = Foreign(2, "NextStep")
    with pytest.raises(ValueError, match=r"Foreign cannot reset some of its 2 lanes.*which seeds"):
        rlmesh.run(lambda observation: 0, env, seeds=[1])
    with serving(env) as server, pytest.raises(ValueError, match="which seeds need") as caught:
        rlmesh.run(lambda observation: 0, server.address, seeds=[1])
    assert server.address in str(caught.value)
    assert env.whole_resets == 0


# What an env may be


class Halved(RemoteEnv):
    """A client with a step of its own."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward / 2, *rest


def test_a_client_that_steps_in_its_own_way_is_driven_through_it() -> None:
    expected = rlmesh.run(feedback, Walk(), seeds=range(5))
    with serving(Walk()) as server, Halved(server.address) as env:
        for where in (env, [env, Walk()]):
            result = rlmesh.run(feedback, where, seeds=range(1))
            assert result.episodes[0].reward == pytest.approx(expected.episodes[0].reward / 2)


def test_a_gymnasium_client_and_what_wraps_it() -> None:
    import rlmesh.gymnasium

    expected = numbers(rlmesh.run(feedback, Walk(), seeds=range(5)))
    with serving(Walk()) as server:
        env = rlmesh.gymnasium.RemoteEnv(server.address)
        assert numbers(rlmesh.run(feedback, env, seeds=range(5))) == expected
        limited = gymnasium.wrappers.TimeLimit(env, 2)
        result = rlmesh.run(feedback, limited, seeds=range(5))
        assert [episode.steps for episode in result.episodes] == [2, 1, 2, 2, 2]
        env.close()


def test_a_server_stands_for_its_address() -> None:
    with serving(Walk()) as server:
        assert rlmesh.run(feedback, server, seeds=[2]).total_steps == 11
        assert rlmesh.run(feedback, [server, Walk()], seeds=[2, 2]).total_steps == 22


def test_an_env_of_the_old_kind() -> None:
    """Four values a step, a bare observation from reset, a reward that is no float, no infos."""

    class Old:
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        steps = 0

        def reset(self) -> Any:
            self.steps = 0
            return np.zeros(2, np.float32)

        def step(self, action: int) -> Any:
            self.steps += 1
            return [np.zeros(2, np.float32), np.array([1]), self.steps == 3, None]

        def close(self) -> None:
            pass

    for where in (Old(), [Old(), Old()]):
        result = rlmesh.run(lambda observation: 1, where, max_episodes=2)
        assert [(e.steps, e.reward, e.terminated) for e in result.episodes] == [(3, 3.0, True)] * 2


@pytest.mark.parametrize("close_env", [False, True])
def test_borrowed_envs_are_closed_on_request_only(close_env: bool) -> None:
    """RUN-5."""
    closed: list[str] = []

    class Closing(Walk):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "sore":
                raise OSError("sore")

    with (
        serving(Walk(), allow_remote_shutdown=True) as lenient,
        serving(Walk()) as strict,
        RemoteEnv(strict.address) as handle,
    ):
        envs = [Closing("first"), Closing("last"), lenient.address, handle]
        rlmesh.run(feedback, envs, seeds=range(4), close_env=close_env)
        assert sorted(closed) == (["first", "last"] if close_env else [])
        assert handle.reset(seed=0)[0]["clock"] == 0
        if not close_env:
            rlmesh.run(feedback, lenient.address)
    if close_env:
        closed.clear()
        with pytest.raises(OSError, match="sore"):
            rlmesh.run(feedback, [Closing("a"), Closing("sore"), Closing("b")], close_env=True)
        assert sorted(closed) == ["a", "b", "sore"], "every one is closed, whatever one raises"
