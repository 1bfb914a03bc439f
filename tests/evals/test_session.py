"""`Session`: the seed page's "Session lifecycle", one test a sentence, and the SES rows."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from eval_envs import Feedback, OpenLoop, Walk, feedback, open_loop
from gymnasium.vector import SyncVectorEnv
from support import Resources, eventually, serving
from traces import numbers

import rlmesh
from rlmesh.numpy import Model, RemoteEnv


class Logged(Model):
    """Says when an episode ends and when it is closed."""

    def load(self) -> None:
        self.log: list[str] = []

    def predict(self, observation: Any) -> Any:
        return feedback(observation)

    def on_episode_end(self, episode_id: str = "") -> None:
        self.log.append("end")

    def close(self) -> None:
        self.log.append("close")


def by_hand(session: rlmesh.Session, seeds: list[int]) -> list[tuple[Any, ...]]:
    rows = []
    for seed in seeds:
        observation, _ = session.reset(seed=seed)
        total, steps = 0.0, 0
        while not session.done:
            action = session.predict(observation)
            observation, reward, terminated, truncated, info = session.step(action)
            total += reward
            steps += 1
        rows.append((seed, steps, total.hex(), terminated, truncated, info["success"]))
    return rows


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("remote", [False, True])
def test_driven_by_hand_it_gives_the_numbers_of_run(remote: bool, horizon: int) -> None:
    """ "run is a loop over the same reset / predict / step primitives"."""
    seeds = list(range(6))
    model = OpenLoop() if horizon > 1 else Feedback()
    with ExitStack() as stack:
        env = stack.enter_context(serving(Walk())).address if remote else Walk()
        result = rlmesh.run(model, env, seeds=seeds, execution_horizon=horizon)
        session = stack.enter_context(rlmesh.session(model, env, execution_horizon=horizon))
        assert by_hand(session, seeds) == [row[1:7] for row in numbers(result)]
        assert numbers(session.run(seeds=seeds)) == numbers(result), "and the loop goes on"
        assert by_hand(session, seeds[:2]) == [row[1:7] for row in numbers(result)[:2]]


def test_nothing_is_connected_before_the_first_use() -> None:
    """ "The env connection opens lazily": an address nobody listens at is reported then."""
    session = rlmesh.session(feedback, "127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9"):
        session.reset()
    session.close()
    with serving(Walk()) as server:
        first = rlmesh.session(feedback, server.address)
        second = rlmesh.session(feedback, server.address)
        second.reset()
        second.close()
        first.reset()
        first.close()


def test_it_can_be_used_once_the_server_is_there() -> None:
    with serving(Walk()) as server:
        address = server.address
    session = rlmesh.session(feedback, address)
    with pytest.raises(ConnectionError):
        session.run(seeds=[0])
    with serving(Walk(), address):
        assert session.run(seeds=[0]).total_steps == 3
        session.close()


def test_reset_ends_the_previous_episode_and_close_the_last() -> None:
    """ "on_episode_end fires at every episode boundary, the next reset or close for the last"."""
    model = Logged()
    session = rlmesh.session(model, Walk())
    session.reset(seed=0)
    assert model.log == []
    session.reset(seed=1)
    assert model.log == ["end"]
    session.run(seeds=[1, 2])
    assert model.log == ["end"] * 4, "the open one, and the two of the run"
    session.reset(seed=1)
    session.close()
    assert model.log == ["end"] * 5 + ["close"]
    session.close()
    assert model.log.count("close") == 1, "closing twice is closing once"


def test_predict_replays_one_action_of_a_chunk_a_call() -> None:
    asked: list[int] = []

    class Chunks(Model):
        def predict_chunk(self, observation: Any) -> Any:
            asked.append(int(observation["clock"][0]))
            return np.stack([open_loop(observation, k) for k in range(4)])

    with rlmesh.session(Chunks(), Walk((9,)), execution_horizon=3) as session:
        observation, _ = session.reset(seed=0)
        for _ in range(5):
            action = session.predict(observation)
            np.testing.assert_array_equal(action, open_loop(observation))
            observation, *_ = session.step(action)
        assert asked == [0, 3]
        observation, _ = session.reset(seed=0)
        session.predict(observation)
        assert asked == [0, 3, 0], "the tail is dropped at the boundary"


def test_done_is_true_once_the_episode_terminated_or_truncated() -> None:
    with rlmesh.session(feedback, Walk((1, 4))) as session:
        assert not session.done
        observation, _ = session.reset(seed=0)
        assert not session.done
        *_, terminated, truncated, _ = session.step(feedback(observation))
        assert (session.done, terminated, truncated) == (True, True, False)
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            session.step(feedback(observation))
        observation, _ = session.reset(seed=1)
        assert not session.done
        for _ in range(4):
            *_, terminated, truncated, _ = session.step(session.predict(observation))
        assert (session.done, terminated, truncated) == (True, False, True)


@pytest.mark.parametrize("what", ["predict", "step"])
def test_before_a_reset_there_is_no_episode(what: str) -> None:
    with (
        rlmesh.session(feedback, Walk()) as session,
        pytest.raises(RuntimeError, match=rf"{what}\(\) before reset\(\)"),
    ):
        getattr(session, what)(None)


def test_a_step_returns_plain_values() -> None:
    """SES-4: reward float, flags bool."""

    class Numpy(Walk):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            flags = np.bool_(terminated), np.bool_(truncated)
            return observation, np.float32(reward), *flags, info

    with rlmesh.session(feedback, Numpy()) as session:
        session.reset(seed=0)
        *_, reward, terminated, truncated, info = session.step(np.zeros(2, np.float32))
        assert [type(v) for v in (reward, terminated, truncated)] == [float, bool, bool]
        assert info == {"n": 1}


def test_a_step_takes_what_converts_without_loss() -> None:
    """SES-3: cast and shape to the env's Box."""
    with rlmesh.session(lambda observation: [0.5, 1], Walk()) as session:
        observation, _ = session.reset(seed=0)
        action = session.predict(observation)
        assert action.dtype == np.float32 and action.tolist() == [0.5, 1.0]
        session.step((0, 1))


def test_using_it_as_a_context_manager_closes_it_when_a_step_raises() -> None:
    model = Logged()
    with pytest.raises(KeyError, match="mine"), rlmesh.session(model, Walk()) as session:
        session.reset(seed=0)
        raise KeyError("mine")
    assert model.log == ["end", "close"]
    with pytest.raises(RuntimeError, match="session is closed"):
        session.reset()


def test_the_error_of_the_block_wins_over_that_of_closing() -> None:
    model = Model(feedback, on_close=lambda: 1 / 0)
    with pytest.raises(KeyError) as caught, rlmesh.session(model, Walk()) as session:
        session.reset()
        raise KeyError("mine")
    assert "ZeroDivisionError" in "\n".join(caught.value.__notes__)
    session = rlmesh.session(model, Walk())
    session.reset()
    with pytest.raises(ZeroDivisionError):
        session.close()
    session.close()


def test_closing_takes_every_step_whatever_one_raises() -> None:
    """SES-7: the first error propagates, all steps run."""
    order: list[str] = []

    class Sore(Walk):
        def close(self) -> None:
            order.append("env")
            raise OSError("env")

    def fail(name: str) -> Any:
        order.append(name)
        raise KeyError(name)

    model = Model(feedback, on_episode_end=lambda: fail("end"), on_close=lambda: fail("close"))
    session = rlmesh.session(model, Sore(), close_env=True)
    session.reset()
    with pytest.raises(KeyError):
        session.close()
    assert order == ["end", "close", "env"]


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.reset(),
        lambda s: s.predict(None),
        lambda s: s.step(None),
        lambda s: s.run(seeds=[0]),
        lambda s: s.run(max_episodes=0),
        lambda s: s.contract,
        lambda s: s.num_envs,
        lambda s: s.selected_workflow_edition,
        lambda s: s.observation_roles(),
        lambda s: s.read({}, "x"),
        lambda s: s.frame_sources(),
    ],
)
def test_after_close_every_use_says_that_it_is_closed(use: Any) -> None:
    session = rlmesh.session(feedback, Walk())
    session.close()
    with pytest.raises(RuntimeError, match="session is closed"):
        use(session)


def test_closing_an_unused_session_closes_the_model_and_touches_no_env() -> None:
    model, env = Logged(), Walk()
    with rlmesh.session(model, env):
        pass
    assert model.log == ["close"] and env.resets == []


@pytest.mark.parametrize("close_env", [False, True])
@pytest.mark.parametrize("remote", [False, True])
def test_the_env_is_shut_only_on_request(close_env: bool, remote: bool) -> None:
    closed: list[bool] = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(True)

    with serving(Closing(), allow_remote_shutdown=True) as server:
        env = server.address if remote else Closing()
        with rlmesh.session(feedback, env, close_env=close_env) as session:
            session.reset(seed=0)
        if close_env:
            eventually(lambda: closed == [True], "the env is closed")
        else:
            assert rlmesh.run(feedback, env, seeds=[0]).num_episodes == 1
            assert closed == []


def test_a_session_holds_nothing_after_its_end() -> None:
    with serving(Walk()) as server:
        rlmesh.run(feedback, server.address, seeds=[0])
        before = Resources.now()
        with rlmesh.session(feedback, [server.address, Walk()]) as session:
            session.run(seeds=range(3))
        rlmesh.run(feedback, [server.address, Walk()], seeds=range(3))
        before.assert_back()


def test_what_the_env_says_of_itself() -> None:
    """SES-8."""
    with serving(Walk()) as server, rlmesh.session(feedback, server.address) as session:
        assert session.contract == server.env_contract
        assert session.num_envs == 1
        assert session.selected_workflow_edition == "2026.06"
    with rlmesh.session(feedback, [Walk(), Walk()]) as session:
        assert session.num_envs == 2
        with pytest.raises(RuntimeError, match="local env has no negotiated"):
            assert session.selected_workflow_edition


@pytest.mark.parametrize("env", [[Walk(), Walk()], SyncVectorEnv([Walk, Walk])])
def test_several_lanes_are_driven_by_run_only(env: Any) -> None:
    with rlmesh.session(feedback, env) as session:
        for act in (session.reset, lambda: session.predict(None), lambda: session.step(None)):
            with pytest.raises(ValueError, match=r"num_envs=2; use run\(\)"):
                act()
        assert session.run(seeds=[0, 1]).total_steps == 4


def test_a_vector_env_of_one_lane_is_a_single_env() -> None:
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=range(4)))
    with rlmesh.session(feedback, SyncVectorEnv([Walk])) as session:
        assert by_hand(session, list(range(4))) == [row[1:7] for row in expected]


@pytest.mark.parametrize(
    ("seed", "kind"), [("1", TypeError), (1.0, TypeError), (True, TypeError), (2**63, ValueError)]
)
def test_a_seed_that_is_none_is_refused_and_the_episode_goes_on(
    seed: Any, kind: type[Exception]
) -> None:
    model = Logged()
    with rlmesh.session(model, Walk()) as session:
        session.reset(seed=0)
        with pytest.raises(kind, match="seed must"):
            session.reset(seed=seed)
        assert model.log == [] and not session.done


def test_a_trial_index_goes_only_to_an_env_that_declares_it() -> None:
    """SES-2."""
    got: list[Any] = []

    class Trials(Walk):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            got.append(options)
            return super().reset(seed=seed)

    with (
        rlmesh.session(feedback, Trials()) as session,
        pytest.warns(UserWarning, match="declares no such reset option"),
    ):
        session.reset(trial_index=3)
    assert got == [None]
    declared = Trials()
    declared.metadata = {"rlmesh.env.v1.reset_options": ["trial_index"]}
    with rlmesh.session(feedback, declared) as session:
        session.reset(trial_index=3)
    assert got == [None, {"trial_index": 3}]


def test_random_sample_by_hand() -> None:
    """MOD-20: the same actions as in a run."""
    with rlmesh.session(rlmesh.RANDOM_SAMPLE, Walk()) as session:
        rows = by_hand(session, [3, 4])
    result = rlmesh.run(rlmesh.RANDOM_SAMPLE, Walk(), seeds=[3, 4])
    assert rows == [row[1:7] for row in numbers(result)]
    assert repr(rlmesh.RANDOM_SAMPLE) == "RANDOM_SAMPLE"


def test_model_session_and_run_are_those_of_the_module() -> None:
    model, expected = Feedback(), numbers(rlmesh.run(Feedback(), Walk(), seeds=range(3)))
    assert numbers(model.run(Walk(), seeds=range(3))) == expected
    with model.session(Walk()) as session:
        assert isinstance(session, rlmesh.Session)
        assert numbers(session.run(seeds=range(3))) == expected


def test_values_come_in_the_framework_of_the_env_side() -> None:
    """SES-9."""
    with (
        serving(Walk()) as server,
        rlmesh.RemoteEnv(server.address) as native,
        rlmesh.session(feedback, native) as session,
    ):
        observation, _ = session.reset(seed=0)
        assert isinstance(observation["x"], rlmesh.Tensor)
        assert session.predict(observation).dtype == np.float32
    with (
        serving(Walk()) as server,
        RemoteEnv(server.address) as handle,
        rlmesh.session(feedback, handle) as session,
    ):
        assert isinstance(session.reset()[0]["x"], np.ndarray)


def test_the_context_of_a_hand_driven_episode() -> None:
    told: list[Any] = []

    class Told(Model):
        def predict(self, observation: Any, context: Any) -> Any:
            told.append((context["episode_id"], context["episode_seed"], context["predict_index"]))
            return np.zeros(2, np.float32)

    with rlmesh.session(Told(), Walk()) as session:
        for seed in (2, None):
            observation, _ = session.reset(seed=seed)
            for _ in range(2):
                session.step(session.predict(observation))
    ids = [row[0] for row in told]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert [row[1:] for row in told] == [(2, 0), (2, 1), (None, 0), (None, 1)]
