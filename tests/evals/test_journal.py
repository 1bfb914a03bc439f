"""`journal=`: what was finished is on disk, the same call resumes it, and nothing is taken for a
journal that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Feedback, OpenLoop, Walk, feedback
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import python_child, serving
from traces import numbers

import rlmesh

SEEDS = [2, 0, 1, 3, 0, 2**62]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def run(path: Path, env: Any = None, **arguments: Any) -> rlmesh.RunResult:
    return rlmesh.run(
        feedback, Walk() if env is None else env, journal=path, **{"seeds": SEEDS, **arguments}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


class OnDisk(rlmesh.RunHooks):
    """Checks, whenever an episode begins or ends, that all finished ones are whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished: list[int] = []

    def _check(self) -> None:
        data = self.path.read_bytes()
        assert data.endswith(b"\n")
        assert [e["episode"]["index"] for e in lines_of(self.path)[1:]] == self.finished

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self._check()

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.finished.append(result.index)
        self._check()


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_episode_is_on_disk_before_the_next_begins(path: Path, lanes: int) -> None:
    hook = OnDisk(path)
    envs = [Walk() for _ in range(lanes)]
    result = run(path, envs if lanes > 1 else envs[0], hooks=hook)
    assert sorted(hook.finished) == list(range(len(SEEDS)))
    episodes = {e["episode"]["index"]: e["episode"] for e in lines_of(path)[1:]}
    assert [episodes[i] for i in range(len(SEEDS))] == result.to_dict()["episodes"]


def test_the_same_call_resumes_and_reruns_nothing(path: Path) -> None:
    first = run(path)
    before = path.read_bytes()
    env, hook = Walk(), OnDisk(path)
    again = run(path, env, hooks=hook)
    assert (again.episodes, again.errors) == (first.episodes, first.errors), "timings and all"
    assert (env.resets, hook.finished) == ([], [])
    assert path.read_bytes() == before


class Stop(rlmesh.RunHooks):
    def __init__(self, after: int) -> None:
        self.left = after

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        self.left -= 1
        if not self.left:
            raise InterruptedError


@pytest.mark.parametrize("after", range(1, len(SEEDS) + 1))
def test_a_run_that_failed_goes_on_where_it_stopped(path: Path, after: int) -> None:
    expected = numbers(run(path.with_suffix(".whole")))
    with pytest.raises(InterruptedError) as caught:
        run(path, hooks=Stop(after))
    partial = rlmesh.partial_result(caught.value)
    assert partial is not None and numbers(partial) == expected[:after]
    env = Walk()
    assert numbers(run(path, env)) == expected
    assert env.resets == SEEDS[after:]


def test_another_number_of_endpoints_may_resume(path: Path) -> None:
    """Where an episode ran is no part of its number."""
    expected = numbers(run(path.with_suffix(".whole")))
    with pytest.raises(InterruptedError):
        run(path, hooks=Stop(2))
    with serving([Walk(), Walk()]) as server:
        assert numbers(run(path, [server.address, Walk()], max_batch=1)) == expected


def test_a_session_resumes_too(path: Path) -> None:
    with rlmesh.session(feedback, Walk()) as session:
        first = session.run(seeds=SEEDS, journal=path)
        assert session.run(seeds=SEEDS, journal=str(path)).episodes == first.episodes
    assert run(path).episodes == first.episodes


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "seeds": ({"seeds": [*SEEDS, 7]}, r"seeds: the journal has \[2, 0, .*this run has \[2, 0"),
    "budget": ({"max_episodes": 3}, "seeds: the journal has"),
    "step cap": (
        {"max_episode_steps": 9},
        "max_episode_steps: the journal has 100000, this run has 9",
    ),
    "time cap": (
        {"max_episode_seconds": 60},
        "max_episode_seconds: the journal has null, this run has 60",
    ),
    "prefetch": ({"prefetch_lead": 1}, "prefetch_lead: the journal has 0, this run has 1"),
    "instruction": (
        {"instruction": "go"},
        'instruction: the journal has null, this run has "go"',
    ),
}


@pytest.mark.parametrize("torn", [b"", b'{"episode":{"ind'])
@pytest.mark.parametrize("changed", OTHERS)
def test_a_changed_argument_is_refused_and_shown(path: Path, changed: str, torn: bytes) -> None:
    run(path)
    path.write_bytes(path.read_bytes() + torn)
    before, env = path.read_bytes(), Walk()
    arguments, message = OTHERS[changed]
    with pytest.raises(ValueError, match=message) as caught:
        run(path, env, **arguments)
    assert str(path) in str(caught.value) and "another path" in str(caught.value)
    assert (path.read_bytes(), env.resets) == (before, [])


def test_another_model_env_or_horizon_is_refused_and_shown(path: Path) -> None:
    def again(model: Any, env: Any, **arguments: Any) -> str:
        with pytest.raises(ValueError, match="is the journal of another run") as caught:
            rlmesh.run(model, env, seeds=SEEDS, journal=path, **arguments)
        return str(caught.value)

    rlmesh.run(OpenLoop(), Walk(), seeds=SEEDS, journal=path)
    assert 'model: the journal has "eval_envs:OpenLoop", this run has "eval_envs:Feedback"' in (
        again(Feedback(), Walk())
    )
    assert "execution_horizon: the journal has 1, this run has 3" in again(
        OpenLoop(), Walk(), execution_horizon=3
    )
    assert 'model: the journal has "eval_envs:OpenLoop", this run has "RANDOM_SAMPLE"' in again(
        rlmesh.RANDOM_SAMPLE, Walk()
    )
    wider = Walk()
    wider.action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    said = again(OpenLoop(), wider)
    assert "action_space: the journal has" in said and "observation_space" not in said
    wrapped = gymnasium.wrappers.TimeLimit(wider, 5)
    wrapped.unwrapped.spec = gymnasium.envs.registration.EnvSpec("Mine-v0", lambda: None)
    assert 'env: the journal has "UnknownEnv-v1", this run has "Mine-v0"' in again(
        OpenLoop(), wrapped
    )


# Torn and foreign files


def test_a_torn_last_line_is_repaired_at_every_offset(path: Path) -> None:
    """The power goes while a line is written: its episode is run again, all others are kept."""
    expected = numbers(run(path))
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        env = Walk()
        assert numbers(run(path, env)) == expected, cut
        assert env.resets == SEEDS[-1:], cut
        assert path.read_bytes()[:last] == whole[:last]
        assert len(lines_of(path)) == 1 + len(SEEDS)


def test_a_torn_first_line_is_begun_again_at_every_offset(path: Path) -> None:
    expected = numbers(run(path))
    head = path.read_bytes().index(b"\n")
    whole = path.read_bytes()
    for cut in range(0, head + 1, 1 if head < 200 else 7):
        path.write_bytes(whole[:cut])
        assert numbers(run(path)) == expected, cut
        assert len(lines_of(path)) == 1 + len(SEEDS)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(share=st.floats(0, 1), junk=st.binary(max_size=40).filter(lambda b: b"\n" not in b))
def test_a_file_cut_anywhere_is_resumed(path: Path, share: float, junk: bytes) -> None:
    """Also with something else in place of what was cut off, as file systems leave behind."""
    path.unlink(missing_ok=True)
    expected = numbers(run(path))
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    cut = head + round(share * (len(whole) - head))
    cut = whole.rindex(b"\n", 0, cut) + 1 if junk else cut
    path.write_bytes(whole[:cut] + junk)
    kept = whole[:cut].count(b"\n") - 1
    env = Walk()
    assert numbers(run(path, env)) == expected
    assert env.resets == SEEDS[kept:]


def whole_journal(path: Path) -> list[bytes]:
    run(path)
    return path.read_bytes().splitlines(keepends=True)


FOREIGN: dict[str, Callable[[Path], bytes]] = {
    "notes": lambda path: b"to do: buy milk\n",
    "notes without an end": lambda path: b"to do: buy milk",
    "bytes": lambda path: bytes(range(256)),
    "a list": lambda path: b"[1, 2]\n",
    "other JSON": lambda path: b'{"episodes": 3}\n{"episode": 4}\n',
    "one number": lambda path: b"7\n",
    "a head without a configuration": lambda path: b'{"rlmesh_journal":1}\n',
    "a newer format": lambda path: b'{"rlmesh_journal":2,"config":{}}\n',
    "a damaged line": lambda path: b"".join(
        [*(lines := whole_journal(path))[:2], b"\x00" * 9 + b"\n", *lines[3:]]
    ),
    "a foreign line": lambda path: b"".join([*whole_journal(path)[:2], b'{"episode":3}\n']),
    "a line too much": lambda path: b"".join([*whole_journal(path), b'{"success":true}\n']),
    "a strange episode": lambda path: b"".join(
        [*whole_journal(path), b'{"episode":{"index":1,"seed":2}}\n']
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_journal_is_refused_and_left_alone(path: Path, what: str) -> None:
    data = FOREIGN[what](path)
    path.write_bytes(data)
    env = Walk()
    with pytest.raises(ValueError, match="is not a journal that can be resumed") as caught:
        run(path, env)
    assert str(path) in str(caught.value)
    assert (path.read_bytes(), env.resets) == (data, [])


def test_a_folder_that_is_not_there_is_an_error_before_the_first_episode(tmp_path: Path) -> None:
    env = Walk()
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "no" / "run.jsonl", env)
    assert env.resets == []


# What else is kept


def test_lost_attempts_are_on_record_and_counted_on(path: Path) -> None:
    """An episode that was lost before the process was is in its second attempt after."""

    class Flaky(Walk):
        def step(self, action: Any) -> Any:
            if self.resets == [2]:
                raise KeyError("the first attempt")
            return super().step(action)

    class Give(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            raise InterruptedError("in the second attempt")

    with serving(Flaky()) as server:
        with pytest.raises(InterruptedError) as caught:
            run(path, server.address, retries=2, hooks=Give())
        partial = rlmesh.partial_result(caught.value)
        assert partial is not None
        result = run(path, server.address, retries=2)
    assert [episode.attempts for episode in result.episodes] == [2, 1, 1, 1, 1, 1]
    (error,) = result.errors
    assert (error.index, error.seed, error.attempt) == (0, 2, 1)
    assert error.endpoint == server.address and "the first attempt" in error.error
    assert partial.errors == result.errors == run(path).errors


def test_numbers_survive_the_file_to_the_last_bit(path: Path) -> None:
    class Odd(Walk):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, REWARDS[self.resets[-1] or 0], *rest

    REWARDS = {2: 0.1, 0: float("inf"), 1: -0.0, 3: 5e-324, 2**62: 1 / 3}
    first = run(path, Odd())
    assert [e.reward.hex() for e in run(path).episodes] == [e.reward.hex() for e in first.episodes]


def test_two_processes_do_not_share_a_journal(path: Path) -> None:
    code = """
import sys
from rlmesh.evals.journal import Journal
journal = Journal(sys.argv[1], {})
print("open", flush=True)
import time
time.sleep(60)
"""
    with python_child(code, str(path)) as child:
        assert child.line() == "open"
        with pytest.raises(RuntimeError, match="still going on in another process"):
            run(path)
        child.kill()
        with pytest.raises(ValueError, match="is the journal of another run"):
            run(path)
