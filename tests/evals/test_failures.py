"""Something raises in the middle of a run: its type is kept, everything is cleaned up in order, and
what was finished is not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eval_envs import Walk, feedback
from gymnasium.vector import SyncVectorEnv
from support import serving
from traces import numbers

import rlmesh
from rlmesh.numpy import Model, RemoteEnv, RemoteVectorEnv

SEEDS = [0, 1, 3, 2, 4]
LONG = 2
"""The seed whose episode of 11 steps goes wrong at its fifth."""


class Boom(Exception):
    """Nobody but the test raises it."""


class Log(list[str]):
    """What happened, in order; the first to call :meth:`blow` at ``where`` raises."""

    def __init__(self, where: str = "", exc: BaseException | None = None) -> None:
        super().__init__()
        self.where = where
        self.exc = exc or Boom("here")

    def blow(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            self.append(f"raised in {where}")
            raise self.exc


class Logged(Model):
    """Feedback that says when episodes end and when it is closed."""

    log: Log

    def predict(self, observation: Any) -> Any:
        if observation["clock"][0] == 5:
            self.log.blow("predict")
        return feedback(observation)

    def on_episode_end(self, episode_id: str = "") -> None:
        self.log.append(f"model: end of {episode_id.split('.')[1]}")
        if episode_id.split(".")[1] == str(SEEDS.index(LONG)):
            self.log.blow("model end")

    def close(self) -> None:
        self.log.append("model: close")
        self.log.blow("model close")


def logged(log: Log) -> Logged:
    return type("Policy", (Logged,), {"log": log})()


class LoggedEnv(Walk):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed == LONG:
            self.log.blow("env reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self._n == 5:
            self.log.blow("env step")
        return super().step(action)

    def close(self) -> None:
        self.log.append("env: close")


class Hooks(rlmesh.RunHooks):
    def __init__(self, log: Log) -> None:
        self.log = log
        self.ended: list[rlmesh.RunResult] = []

    def on_run_start(self, context: rlmesh.RunContext) -> None:
        self.log.append("run start")
        self.log.blow("on_run_start")

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.log.append(f"episode {episode} begins")
        if seed == LONG:
            self.log.blow("on_episode_start")

    def on_step(self, event: rlmesh.StepEvent) -> None:
        if event.step == 5:
            self.log.blow("on_step")

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.log.append(f"episode {result.index} has ended")
        if result.seed == 3:
            self.log.blow("on_episode_end")

    def on_run_end(self, result: rlmesh.RunResult) -> None:
        self.log.append("run end")
        self.ended.append(result)
        self.log.blow("on_run_end")


WORLDS = ["local", "remote", "list", "addresses", "lanes", "vector"]
REMOTE = {"remote", "addresses", "lanes"}


def make(stack: ExitStack, world: str, log: Log) -> Any:
    envs = [LoggedEnv(log) for _ in range(1 if world in ("local", "remote") else 3)]
    if world == "local":
        return envs[0]
    if world == "remote":
        return stack.enter_context(serving(envs[0])).address
    if world == "list":
        return envs
    if world == "addresses":
        return [stack.enter_context(serving(env)).address for env in envs]
    if world == "lanes":
        return stack.enter_context(serving(envs)).address
    vector = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode="Disabled")
    vector.close = lambda: log.append("env: close")  # type: ignore[method-assign]
    return vector


PLACES = [
    "predict",
    "env reset",
    "env step",
    "on_run_start",
    "on_episode_start",
    "on_step",
    "on_episode_end",
    "on_run_end",
    "model end",
]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("world", WORLDS)
def test_an_exception_keeps_its_type_and_loses_nothing(
    world: str, where: str, tmp_path: Path
) -> None:
    """HK-2, RUN-6, seed page "Disconnect and reconnect": end the open episodes, on_close, close."""
    undisturbed = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))
    log = Log(where)
    hooks, journal = Hooks(log), tmp_path / "run.jsonl"
    with ExitStack() as stack:
        env = make(stack, world, log)
        from_server = where.startswith("env") and world in REMOTE
        kind = rlmesh.EnvironmentException if from_server else Boom
        with pytest.raises(kind) as caught:
            rlmesh.run(logged(log), env, seeds=SEEDS, hooks=hooks, journal=journal, close_env=True)
        if from_server:
            assert "Boom: here" in "\n".join(caught.value.__notes__), "the remote traceback"
        else:
            assert caught.value is log.exc
    after = log[log.index(f"raised in {where}") + 1 :]

    # Finished episodes: from the exception, from on_run_end and from the journal.
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None
    got = numbers(partial)
    assert got == [row for row in undisturbed if row in got]
    assert hooks.ended == [partial], "on_run_end exactly once"
    lines = [json.loads(line) for line in journal.read_text().splitlines()][1:]
    assert sorted(line["episode"]["index"] for line in lines) == [row[0] for row in got]
    counted = [int(e.split()[1]) for e in log if e.endswith("has ended")]
    assert set(counted) <= {row[0] for row in got}
    if where == "on_run_end":
        assert got == undisturbed

    # Every episode that was begun has ended once for the model, the open ones after the fault.
    begun = [e.split()[1] for e in log if e.endswith("begins")]
    assert sorted(e.split()[-1] for e in log if e.startswith("model: end")) == sorted(begun)
    closes = ["model: close"]
    ends = [e for e in after if e.startswith("model: end")]
    run_end = [] if where == "on_run_end" else ["run end"]
    if from_server:  # what its neighbours did meanwhile came in between
        still_open = set(begun) - {str(row[0]) for row in got}
        ends = [e for e in ends if e.split()[-1] in still_open]
        after = after[after.index(ends[0]) :] if ends else after[after.index("run end") :]
    assert [e for e in after if not e.startswith("env")] == [*ends, *run_end, *closes]
    if world not in REMOTE:
        assert after[-1] == "env: close", "close_env is honoured, and last"


@pytest.mark.parametrize("lanes", [1, 3])
def test_the_error_of_the_run_wins_over_those_of_its_clean_up(lanes: int) -> None:
    class Worse(Hooks):
        def on_run_end(self, result: rlmesh.RunResult) -> None:
            super().on_run_end(result)
            raise KeyError("in on_run_end")

    log = Log("predict")
    model = logged(log)

    def close() -> None:
        raise OSError("in close")

    model.close = close  # type: ignore[method-assign]
    with pytest.raises(Boom) as caught:
        rlmesh.run(model, [Walk() for _ in range(lanes)], seeds=SEEDS, hooks=Worse(log))
    notes = "\n".join(caught.value.__notes__)
    assert "KeyError: 'in on_run_end'" in notes and "OSError: in close" in notes


def test_every_open_episode_ends_though_the_model_fails_to_end_one() -> None:
    ended: list[str] = []

    class Sore(Model):
        def predict(self, observation: Any) -> Any:
            if observation["clock"][0] == 1:
                raise Boom("in predict")
            return feedback(observation)

        def on_episode_end(self, episode_id: str = "") -> None:
            ended.append(episode_id.split(".")[1])
            raise KeyError(f"ending {len(ended)}")

    with pytest.raises(Boom) as caught:
        rlmesh.run(Sore(), [Walk((9,)) for _ in range(3)], seeds=range(3))
    assert ended == ["0", "1", "2"]
    assert "KeyError" in "\n".join(caught.value.__notes__)


def test_a_failing_close_is_raised_when_nothing_else_was() -> None:
    log = Log("model close")
    with pytest.raises(Boom) as caught:
        rlmesh.run(logged(log), Walk(), seeds=[0])
    assert caught.value is log.exc


def test_hooks_may_be_several_and_all_hear_of_the_end() -> None:
    first, second = Hooks(Log("on_run_end")), Hooks(Log("on_run_end", KeyError("second")))
    with pytest.raises(Boom) as caught:
        rlmesh.run(feedback, Walk(), seeds=SEEDS, hooks=[first, second])
    assert caught.value is first.log.exc, "the first failure is the one raised"
    assert [h.log.count("run end") for h in (first, second)] == [1, 1]
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and partial.num_episodes == len(SEEDS)


@pytest.mark.parametrize("exc", [ConnectionResetError("of mine"), TimeoutError("of mine")])
@pytest.mark.parametrize("where", ["on_step", "on_episode_end", "predict", "model end"])
def test_only_an_endpoint_can_cost_an_attempt(where: str, exc: Exception) -> None:
    """A hook that cannot reach its tracker is no lost simulator, however often one may be lost."""
    log = Log(where, exc)
    with ExitStack() as stack:
        env = make(stack, "addresses", log)
        with pytest.raises(type(exc)) as caught:
            rlmesh.run(logged(log), env, seeds=SEEDS, hooks=Hooks(log), retries=5)
    assert caught.value is exc
    assert log.count(f"raised in {where}") == 1


@pytest.fixture
def handles() -> Iterator[list[Any]]:
    with ExitStack() as stack:
        singles = [stack.enter_context(serving(Walk())) for _ in range(3)]
        lanes = stack.enter_context(serving([Walk(), Walk()]))
        made: list[Any] = [stack.enter_context(RemoteEnv(s.address)) for s in singles]
        yield [*made, stack.enter_context(RemoteVectorEnv(lanes.address))]


@pytest.mark.parametrize("where", ["predict", "on_step", "on_episode_start", "on_episode_end"])
def test_handles_can_be_used_after_a_run_failed(where: str, handles: list[Any]) -> None:
    """RUN-5: also those whose answer was on its way when the policy raised."""
    log = Log(where)
    with pytest.raises(Boom):
        rlmesh.run(logged(log), handles, seeds=SEEDS, hooks=Hooks(log))
    for handle in handles[:3]:
        observation, _ = handle.reset(seed=5)
        np.testing.assert_array_equal(observation["x"], Walk().reset(seed=5)[0]["x"])
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))
    assert numbers(rlmesh.run(feedback, handles, seeds=SEEDS)) == expected


def test_the_other_handles_can_be_used_after_one_env_raised(handles: list[Any]) -> None:
    """The session of an env that raised is over; those beside it are not."""
    log = Log("env step")
    with serving(LoggedEnv(log)) as server, RemoteEnv(server.address) as broken:
        with pytest.raises(rlmesh.EnvironmentException):
            rlmesh.run(feedback, [broken, *handles], seeds=[LONG] * 8)
        with pytest.raises(ConnectionError, match="construct a new client"):
            broken.reset()
    for handle in handles[:3]:
        assert handle.reset(seed=1)[0]["clock"] == 0


@pytest.mark.parametrize("world", WORLDS)
def test_a_session_goes_on_after_a_run_failed(world: str) -> None:
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))
    log = Log("predict")
    with ExitStack() as stack:
        env = make(stack, world, log)
        with rlmesh.session(logged(log), env) as session:
            with pytest.raises(Boom):
                session.run(seeds=SEEDS)
            assert numbers(session.run(seeds=SEEDS)) == expected
            assert "model: close" not in log
        assert log.count("model: close") == 1


def test_the_last_journal_line_failing_ends_the_episode_for_the_model(tmp_path: Path) -> None:
    """A full disk, met when an episode is to be put on record."""

    class Full(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            if event.episode == 1:
                journal_file.truncate_and_close()

    class Handle:
        def truncate_and_close(self) -> None:
            import gc

            from rlmesh.evals.journal import Journal

            for found in gc.get_objects():
                if type(found) is Journal:
                    found._file.close()

    journal_file, log = Handle(), Log()
    with pytest.raises(ValueError, match="closed file") as caught:
        rlmesh.run(
            logged(log), Walk(), seeds=[0, 1], hooks=[Full()], journal=tmp_path / "run.jsonl"
        )
    assert [e for e in log if "end of" in e] == ["model: end of 0", "model: end of 1"]
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and partial.num_episodes == 1


class Counting(Model):
    def load(self) -> None:
        self.ended: list[str] = []
        self.closed = 0

    def predict(self, observation: Any) -> Any:
        return feedback(observation)

    def on_episode_end(self, episode_id: str = "") -> None:
        self.ended.append(episode_id)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("world", WORLDS)
def test_the_model_hears_of_each_episode_once_under_an_id_of_its_own(world: str) -> None:
    """Model page "Construction and lifecycle": reset at each episode boundary, close at the end."""
    model = Counting()
    with ExitStack() as stack:
        rlmesh.run(model, make(stack, world, Log()), seeds=SEEDS)
    assert len(set(model.ended)) == len(model.ended) == len(SEEDS)
    assert model.closed == 1


def test_a_model_class_is_made_and_closed_by_the_run() -> None:
    made: list[Counting] = []

    class Made(Counting):
        def load(self) -> None:
            super().load()
            made.append(self)

    assert rlmesh.run(Made, Walk(), seeds=[0]).num_episodes == 1
    assert [model.closed for model in made] == [1]


class Stuck(Walk):
    def close(self) -> None:
        raise Boom("the simulator hangs on")


@pytest.mark.parametrize("exc", [Boom("here"), KeyboardInterrupt()])
def test_what_closing_raises_does_not_cost_the_result(exc: BaseException) -> None:
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))

    class Made(rlmesh.EnvFactory):
        def make(self) -> Any:
            return Stuck()

    log = Log("model close", exc)
    for raised, run in (
        (type(exc), lambda: rlmesh.run(logged(log), Walk(), seeds=SEEDS)),
        (Boom, lambda: rlmesh.run(feedback, Made(), seeds=SEEDS)),
        (Boom, lambda: rlmesh.run(feedback, Stuck(), seeds=SEEDS, close_env=True)),
    ):
        with pytest.raises(raised) as caught:
            run()
        result = rlmesh.partial_result(caught.value)
        assert result is not None and numbers(result) == expected


@pytest.mark.parametrize("exc", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("world", WORLDS)
def test_leaving_the_process_cleans_up_too(
    world: str, exc: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log("predict", exc)
    hooks = Hooks(log)
    with ExitStack() as stack:
        env = make(stack, world, log)
        with pytest.raises(type(exc)) as caught:
            rlmesh.run(logged(log), env, seeds=SEEDS, hooks=hooks)
        assert log[-2:] == ["run end", "model: close"]
    assert caught.value is exc
    assert hooks.ended == [rlmesh.partial_result(exc)]
    told = "rlmesh: interrupted; so far RunResult(episodes="
    assert (told in capfd.readouterr().err) == isinstance(exc, KeyboardInterrupt)
