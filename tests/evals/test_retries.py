"""`retries=`: an endpoint that is lost costs an attempt, not the run; without it, the run ends with
the address of who is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Feedback, Walk, feedback
from gymnasium.vector import SyncVectorEnv
from support import Gate, ServerProcess, eventually, server_process, serving, within
from traces import numbers, traced

import rlmesh
import rlmesh.evals.losses
from rlmesh.envs.link import EnvLink
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.transport.native import NativeChannel, NotNative

SEEDS = list(range(12))
HELD = 2
"""The seed whose episode, of 11 steps, is held in its second."""
FIRST = [HELD, *(seed for seed in SEEDS if seed != HELD)]
"""In this order the first endpoint gets it."""


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "armed").touch()
    return Gate(tmp_path)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return traced(feedback, Walk(), seeds=SEEDS)


@pytest.fixture(scope="module")
def first() -> list[Any]:
    return numbers(rlmesh.run(feedback, Walk(), seeds=FIRST))


def held(stack: ExitStack, gate: Gate, address: str | None = None, lanes: int = 0) -> ServerProcess:
    """A server process whose env waits at the gate."""
    folder = str(gate.folder)
    if lanes:
        target = "evals.eval_envs:helds"
        process = server_process(target, address, count=lanes, folder=folder, seed=HELD)
    else:
        process = server_process("evals.eval_envs:Held", address, folder=folder, seed=HELD)
    return stack.enter_context(process)


class Story(rlmesh.RunHooks):
    """What happened to which episode."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.begun.append(episode)

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.ended.append(result.index)


def no_native_door(*arguments: Any, **options: Any) -> Any:
    raise NotNative("hidden, as if the server were rlmesh 0.1.0")


# Killed and restarted


@pytest.mark.parametrize("transport", ["tcp", "unix", "grpc"])
@pytest.mark.parametrize("lanes", [0, 3])
def test_a_server_killed_and_restarted_costs_the_attempt(
    lanes: int,
    transport: str,
    gate: Gate,
    stack: ExitStack,
    pool: ThreadPoolExecutor,
    expected: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if transport == "grpc":
        monkeypatch.setattr(NativeChannel, "open", no_native_door)
    unix = f"unix://{gate.folder / 'env.sock'}" if transport == "unix" else None
    first = held(stack, gate, unix, lanes)
    story = Story()
    running = pool.submit(
        rlmesh.run, Feedback(), first.address, seeds=SEEDS, retries=1, hooks=story
    )
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    first.kill()
    held(stack, gate, first.address, lanes)
    result = running.result(60)
    assert numbers(result) == [row[:-1] for row in expected]
    lost = {error.index for error in result.errors}
    assert HELD in lost and len(lost) <= max(1, lanes)
    for error in result.errors:
        assert (error.seed, error.attempt) == (SEEDS[error.index], 1)
        assert error.endpoint == first.address in error.error
        assert error.error.startswith("ConnectionError: ")
    assert [e.attempts for e in result.episodes] == [1 + (i in lost) for i in range(len(SEEDS))]
    assert sorted(story.ended) == SEEDS, "an episode ends once"
    assert sorted(story.begun) == sorted([*SEEDS, *lost]), "and begins once an attempt"


@pytest.mark.parametrize("lanes", [0, 3])
@pytest.mark.parametrize("others", [0, 2])
def test_without_retries_the_loss_is_raised_with_the_address(
    lanes: int, others: int, gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor
) -> None:
    server = held(stack, gate, lanes=lanes)
    addresses = [server.address]
    addresses += [stack.enter_context(serving(Walk())).address for _ in range(others)]
    ended: list[str] = []

    class Told(Feedback):
        def on_episode_end(self, episode_id: str = "") -> None:
            ended.append(episode_id.split(".")[1])

    story, seeds = Story(), FIRST if others else SEEDS
    running = pool.submit(rlmesh.run, Told(), addresses, seeds=seeds, hooks=story)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.kill()
    with pytest.raises(ConnectionError) as caught:
        running.result(60)
    assert server.address in str(caught.value)
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and partial.errors == ()
    assert [episode.index for episode in partial.episodes] == sorted(story.ended)
    assert seeds.index(HELD) not in story.ended
    # Every lane of the endpoint that is gone has ended for the model, too.
    assert sorted(map(int, ended)) == sorted(story.begun)


def test_one_of_five_gone_for_good_leaves_the_work_to_the_others(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, first: list[Any]
) -> None:
    server = held(stack, gate)
    others = [stack.enter_context(serving(Walk())).address for _ in range(4)]
    running = pool.submit(rlmesh.run, feedback, [server.address, *others], seeds=FIRST, retries=1)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.kill()
    result = running.result(60)
    assert numbers(result) == first
    assert [(error.index, error.endpoint) for error in result.errors] == [(0, server.address)]


class Endless(Walk):
    """Ends when it is told to."""

    over = False

    def step(self, action: Any) -> Any:
        self._length = self._n + 1 if self.over else 10**9
        return super().step(action)


@pytest.mark.parametrize("kind", ["endpoints", "lanes", "vector"])
def test_who_is_idle_takes_over_while_others_work(
    kind: str, gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor
) -> None:
    """An idle endpoint, or a free lane of one that is busy: nobody waits for the endless episode,
    which ends only once the lost one has been run again."""
    server, idle, endless = held(stack, gate), Walk(), Endless()

    class Tell(Story):
        def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
            super().on_episode_end(result)
            endless.over = endless.over or result.index == 0

    if kind == "endpoints":
        others = [stack.enter_context(serving(env)).address for env in (idle, endless)]
    elif kind == "lanes":
        others = [stack.enter_context(serving([idle, endless])).address]
    else:
        both = SyncVectorEnv([lambda: idle, lambda: endless], autoreset_mode="Disabled")
        others = [stack.enter_context(serving(both)).address]
    tell = Tell()
    running = pool.submit(
        rlmesh.run,
        feedback,
        [server.address, *others],
        seeds=[HELD, 1, 4],
        retries=1,
        hooks=tell,
    )
    eventually(lambda: gate.entered and tell.ended == [1], "one is held, one is idle")
    server.kill()
    result = running.result(60)
    assert [e.steps for e in result.episodes[:2]] == [11, 1]
    assert result.episodes[0].attempts == 2
    assert endless.over and result.episodes[2].steps < 100_000, "it was told, not cut"


def test_all_gone_for_good_is_an_error_in_bounded_time(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rlmesh.evals.losses, "_RECONNECT_SECONDS", 0.5)
    server = held(stack, gate)
    running = pool.submit(rlmesh.run, feedback, server.address, seeds=SEEDS, retries=9)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.kill()
    with pytest.raises(ConnectionError) as caught:
        running.result(60)
    assert server.address in str(caught.value)
    assert any("dialling it again failed" in note for note in caught.value.__notes__)
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None
    assert [episode.index for episode in partial.episodes] == [0, 1]
    assert [(error.index, error.attempt) for error in partial.errors] == [(HELD, 1)]


# Stopped, not dead


def stopped_run(
    pool: ThreadPoolExecutor,
    gate: Gate,
    server: ServerProcess,
    handle: Any,
    others: list[Any],
    **arguments: Any,
) -> Future[rlmesh.RunResult]:
    running = pool.submit(rlmesh.run, feedback, [handle, *others], **arguments)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.pause()
    return running


@pytest.mark.parametrize("lanes", [0, 2])
def test_a_stopped_endpoint_times_out_and_costs_the_attempt(
    lanes: int, gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, first: list[Any]
) -> None:
    """Dialling it again would take for ever, too: nobody waits for that."""
    server = held(stack, gate, lanes=lanes)
    kind = RemoteVectorEnv if lanes else RemoteEnv
    handle = stack.enter_context(
        kind(server.address, request_timeout_seconds=0.5, connect_timeout_seconds=None)
    )
    others = [stack.enter_context(serving(Walk())).address for _ in range(2)]
    running = stopped_run(pool, gate, server, handle, others, seeds=FIRST, retries=1)
    try:
        result = running.result(60)
    finally:
        server.resume()
    assert numbers(result) == first
    assert 0 in [error.index for error in result.errors]
    for error in result.errors:
        assert error.error.startswith("TimeoutError: ") and server.address in error.error
    gate.open()


class Hearing(Feedback):
    """``lost`` is set when the first episode ends for the model without having been finished."""

    def load(self) -> None:
        self.lost = threading.Event()

    def on_episode_end(self, episode_id: str = "") -> None:
        if episode_id.endswith(".0.1"):  # the first attempt at the first episode
            self.lost.set()


def test_dialling_a_stopped_endpoint_holds_up_nobody(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor
) -> None:
    """There is work for it, so it is dialled, and its handshake is never answered; the others'
    steps go on all the same."""
    server, endless = held(stack, gate), Endless()
    handle = stack.enter_context(
        RemoteEnv(server.address, request_timeout_seconds=0.5, connect_timeout_seconds=None)
    )
    model, steps = Hearing(), 0

    class Count(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            nonlocal steps
            steps += event.episode == 1 and model.lost.is_set()
            endless.over = steps > 50

    other = stack.enter_context(serving(endless)).address
    running = pool.submit(
        rlmesh.run, model, [handle, other], seeds=[HELD, 4], retries=1, hooks=Count()
    )
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.pause()
    try:
        result = running.result(60)
    finally:
        server.resume()
        gate.open()
    assert [e.attempts for e in result.episodes] == [2, 1]


def test_an_env_that_is_stuck_costs_one_attempt_however_long_it_is(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server answers, its env does not: it is no use before the env can be had again."""
    server, model, dialled = held(stack, gate), Hearing(), list[str]()
    real = EnvLink.reopen

    def reopen(link: EnvLink) -> None:
        dialled.append(link.address)
        real(link)

    monkeypatch.setattr(EnvLink, "reopen", reopen)
    handle = stack.enter_context(RemoteEnv(server.address, request_timeout_seconds=0.3))
    running = pool.submit(rlmesh.run, model, handle, seeds=[HELD], retries=1)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    eventually(lambda: len(dialled) >= 3 or running.done(), "it was dialled again and again")
    gate.open()
    result = running.result(60)
    assert [(e.steps, e.attempts) for e in result.episodes] == [(11, 2)]


def test_a_stopped_endpoint_is_raised_although_the_others_are_busy(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor
) -> None:
    """The others have an answer ready at every glance; their episodes never end."""
    server = held(stack, gate)
    handle = stack.enter_context(RemoteEnv(server.address, request_timeout_seconds=0.5))
    others = [stack.enter_context(serving(Walk((10**9,)))).address for _ in range(3)]
    seeds = [HELD, *range(3)]
    with within(40):
        running = stopped_run(pool, gate, server, handle, others, seeds=seeds)
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.5 s") as caught:
            running.result(60)
    assert server.address in str(caught.value)
    assert rlmesh.partial_result(caught.value) is not None
    server.resume()
    gate.open()


def test_alone_it_times_out_too(gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor) -> None:
    server = held(stack, gate)
    handle = stack.enter_context(RemoteEnv(server.address, request_timeout_seconds=0.5))
    running = stopped_run(pool, gate, server, handle, [], seeds=SEEDS)
    with pytest.raises(TimeoutError) as caught:
        running.result(60)
    assert server.address in str(caught.value)
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and [e.index for e in partial.episodes] == [0, 1]
    server.resume()
    gate.open()


def test_a_stopped_endpoint_that_goes_on_is_used_again(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, expected: list[Any]
) -> None:
    server = held(stack, gate)
    handle = stack.enter_context(RemoteEnv(server.address, request_timeout_seconds=0.5))
    running = stopped_run(pool, gate, server, handle, [], seeds=SEEDS, retries=1)
    gate.open()
    server.resume()
    result = running.result(60)
    assert numbers(result) == [row[:-1] for row in expected]
    assert len(result.errors) <= 1, "the answer may have come in time"


# Envs that raise


class Raising(Walk):
    """Raises in the first ``times`` attempts at the episode of a seed."""

    def __init__(self, seed: int, times: int, where: str = "step") -> None:
        super().__init__()
        self.seed, self.times, self.where = seed, times, where

    def _maybe(self, where: str) -> None:
        wanted = self.resets[-1] == self.seed and self.where == where
        if wanted and self.times:
            self.times -= 1
            raise KeyError("out of luck")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = super().reset(seed=seed)
        self._maybe("reset")
        return result

    def step(self, action: Any) -> Any:
        if self._n == 1:
            self._maybe("step")
        return super().step(action)


def one(env: Walk) -> Any:
    return env


def lanes(env: Walk) -> Any:
    return [Walk(), env]


def vector(mode: str) -> Callable[[Walk], Any]:
    return lambda env: SyncVectorEnv([Walk, lambda: env], autoreset_mode=mode)


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize("make", [one, lanes, vector("NextStep"), vector("Disabled")])
def test_an_env_that_raises_costs_the_attempt(
    make: Callable[[Walk], Any], where: str, stack: ExitStack, expected: list[Any]
) -> None:
    server = stack.enter_context(serving(make(Raising(3, 1, where))))
    result = rlmesh.run(feedback, server.address, seeds=[3, 3, 3, 4], retries=1)
    steps = [row[2] for row in expected]
    assert [e.steps for e in result.episodes] == [steps[3], steps[3], steps[3], steps[4]]
    assert numbers(result)[1][2:] == expected[3][2:-1]
    assert 1 <= len(result.errors) <= 2, "its neighbour's episode is lost with it"
    for error in result.errors:
        assert error.error.startswith("EnvironmentException: ") and "out of luck" in error.error
        assert error.endpoint == server.address
    assert sum(e.attempts - 1 for e in result.episodes) == len(result.errors)


def test_tries_run_out(stack: ExitStack) -> None:
    server = stack.enter_context(serving(Raising(3, 99)))
    with pytest.raises(rlmesh.EnvironmentException, match="out of luck") as caught:
        rlmesh.run(feedback, server.address, seeds=SEEDS, retries=2)
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None
    assert [e.index for e in partial.episodes] == [0, 1, 2]
    assert [(e.index, e.attempt) for e in partial.errors] == [(3, 1), (3, 2)]


def test_an_env_of_this_process_keeps_its_exception() -> None:
    """There is nothing to connect again, and its traceback says more."""
    for env in (Raising(3, 1), [Raising(3, 1), Walk()]):
        with pytest.raises(KeyError, match="out of luck"):
            rlmesh.run(feedback, env, seeds=SEEDS, retries=5)


def test_another_env_at_the_address_is_not_taken_for_the_lost_one(
    gate: Gate, stack: ExitStack, pool: ThreadPoolExecutor, first: list[Any]
) -> None:
    server = held(stack, gate)
    other = stack.enter_context(serving(Walk())).address
    asked = [server.address, other]
    running = pool.submit(rlmesh.run, feedback, asked, seeds=FIRST, retries=1)
    eventually(lambda: gate.entered, "the env is in the middle of an episode")
    server.kill()
    impostor = Walk()
    impostor.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    stack.enter_context(serving(impostor, server.address))
    assert numbers(running.result(60)) == first
    assert impostor.resets == []
