"""``rlmesh run`` as a process: what it evaluates, says and ends with."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli.commands import command, environ, rlmesh, started
from evals.eval_envs import Walk, feedback
from evals.traces import numbers
from support import Child, Gate, eventually, server_process

import rlmesh as package
from rlmesh.cli import main

SEEDS = [0, 1, 3, 2, 4]
MODEL, ENV = "evals.eval_envs:feedback", "evals.eval_envs:Walk"


def played(document: dict[str, Any]) -> list[tuple[int, Any, int, float]]:
    return [(e["index"], e["seed"], e["steps"], e["reward"]) for e in document["episodes"]]


def expected(seeds: list[int] = SEEDS) -> list[tuple[int, Any, int, float]]:
    result = package.run(feedback, Walk(), seeds=seeds)
    return [(e.index, e.seed, e.steps, e.reward) for e in result.episodes]


def notes(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_run() -> None:
    """Status 0, the summary and nothing else on standard output, the progress on the other."""
    said = rlmesh("run", MODEL, ENV, "--seeds", "0:8")
    assert said.status == 0, said.err
    result = package.run(feedback, Walk(), seeds=range(8))
    rate, (low, high) = result.success_rate, result.success_interval or (0, 0)
    assert said.out.splitlines() == [
        f"episodes      8 of 8, {result.total_steps} steps",
        f"success rate  {rate:.3f} [{low:.3f}, {high:.3f}], 95 % Wilson interval",
        f"mean reward   {result.mean_reward:.3f}",
    ]
    assert said.err.startswith("rlmesh: 8/8 episodes, success")
    assert rlmesh("run", MODEL, ENV, "--seeds", "0:8", "--quiet").err == ""


@pytest.mark.parametrize(
    ("model", "env"),
    [
        (["cli_targets:Policy"], [ENV]),
        (["cli_targets:Feedback", "--model-kwargs", '{"gain": 1.0}'], [ENV]),
        ([MODEL], ["cli_targets:Walks"]),
        ([MODEL], ["cli_targets:Noted", "--env-kwargs", '{"fails": 99}', "--lanes", "3"]),
        ([MODEL], [ENV, "cli_targets:Noted", "--max-batch", "2", "--batch-wait-ms", "1"]),
    ],
)
def test_what_can_be_evaluated_here(model: list[str], env: list[str]) -> None:
    """Whatever the words, the same seeds are the same episodes."""
    said = rlmesh("run", *model, *env, "--seeds", "0,1,3,2,4", "--json")
    assert said.status == 0, said.err
    assert played(said.json) == expected()
    assert (said.json["asked"], said.json["stopped_by"]) == (5, None)


def test_addresses() -> None:
    """Envs and models served elsewhere, several of both, and made here beside them."""
    with ExitStack() as stack:
        envs = [stack.enter_context(server_process(ENV)).address for _ in range(2)]
        models = []
        for _ in range(2):
            serve = ["serve", "cli_targets:Feedback", "--address", "127.0.0.1:0"]
            child = stack.enter_context(started(*serve))
            models.append(child.line().split()[4])
        for model in ([MODEL], [models[0]], [models[0], "--replica", models[1]]):
            said = rlmesh("run", *model, *envs, ENV, "--seeds", "0,1,3,2,4", "--json")
            assert said.status == 0, said.err
            assert played(said.json) == expected()


def test_a_registered_env_and_the_baseline() -> None:
    """An env without an outcome is not scored, unless its end is enough."""
    for env in (["CartPole-v1"], ["gym:CartPole-v1"], ["support.registered:CartPole-v1"]):
        said = rlmesh("run", "random", *env, "--seeds", "0:3", "--json")
        assert said.status == 3, said.err
        assert "3 of 3 episodes are not scored" in said.err and "--score reward" in said.err
        assert said.json["num_episodes"] == 3
    package_ = ["--package", "support.registered", "--max-episode-steps", "2"]
    said = rlmesh("run", "random", "rlmesh-test/Countdown-v0", *package_, "--score", "reward")
    assert said.status == 0, said.err
    assert "success rate  not reported; terminated 0.000" in said.out


def test_a_token() -> None:
    """From the environment; single envs and lanes."""
    with ExitStack() as stack:
        for env in (["--env", ENV], ["--env", ENV, "--num-envs", "2"]):
            child = Child(
                command("serve", *env, "--address", "127.0.0.1:0"),
                environ={"RLMESH_TOKEN": "secret"},
            )
            address = stack.enter_context(child).line().split()[4]
            run = ["run", MODEL, address, "--seeds", "0,1,3,2,4", "--json"]
            said = rlmesh(*run, more={"RLMESH_TOKEN": "secret"})
            assert said.status == 0 and played(said.json) == expected(), said.err
            assert rlmesh(*run).status == 1


def test_what_envs_print_is_kept_apart() -> None:
    """In Python, in C, and when the process ends."""
    said = rlmesh("run", MODEL, "cli_targets:Chatty", "--seeds", "0:2", "--json", "-q")
    assert said.status == 0
    assert said.json["num_episodes"] == 2
    for words in ("python says step", "C says step", "the end"):
        assert words in said.err


def test_numbers_that_are_none_are_null() -> None:
    said = rlmesh("run", MODEL, "cli_targets:NoNumbers", "--seeds", "0:2", "--json")
    assert said.status == 0
    assert said.json["mean_reward"] is None and said.json["episodes"][0]["reward"] is None
    said = rlmesh("run", MODEL, "cli_targets:NoNumbers", "--seeds", "0:2", "--score", "reward")
    assert said.status == 3 and "2 of 2 episodes are not scored: no finite reward" in said.err


def test_a_table() -> None:
    said = rlmesh("run", MODEL, ENV, "--seeds", "0:3", "--table", "-q")
    lines = said.out.splitlines()
    assert lines[0].split()[:4] == ["episode", "seed", "steps", "reward"]
    assert len(lines) == 5 and lines[-1].startswith("RunResult(episodes=3,")


def test_nothing_was_asked_for() -> None:
    said = rlmesh("run", MODEL, ENV, "--episodes", "0", "--json")
    assert (said.status, said.json["num_episodes"], said.json["asked"]) == (3, 0, 0)
    assert "nothing was scored" in said.err


def test_an_error_keeps_what_was_finished(tmp_path: Path) -> None:
    """Status 1; printed, written and in the journal; the same command goes on from there."""
    out, journal = tmp_path / "result.json", tmp_path / "run.jsonl"
    arguments = ["--seeds", "0,1,3,2,4", "--json", "--out", str(out), "--journal", str(journal)]
    kwargs = {"folder": str(tmp_path), "fails": 3}
    run = ["run", MODEL, "cli_targets:Noted", "--env-kwargs", json.dumps(kwargs), *arguments]
    said = rlmesh(*run)
    assert said.status == 1
    assert "error: OSError: the renderer is gone (cli_targets.py:" in said.err
    assert "Traceback" not in said.err
    assert played(said.json) == expected()[:2]
    assert said.json["stopped_by"] == {"type": "OSError", "message": "the renderer is gone"}
    assert json.loads(out.read_text()) == said.json
    assert "env closed" in notes(tmp_path)
    said = rlmesh(*run, "--verbose")
    assert played(said.json) == expected()[:4], "two more, before the third reset again"
    assert "Traceback (most recent call last)" in said.err
    assert rlmesh(*run).status == 0
    assert played(json.loads(out.read_text())) == expected()
    said = rlmesh("run", "cli_targets:Breaks", ENV, "--seeds", "0:5")
    assert said.status == 1
    assert "error: KeyError: 'state' (cli_targets.py:" in said.err
    assert said.out.startswith("episodes      2 of 5, ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([MODEL, "127.0.0.1:9"], "ConnectionError"),
        (["127.0.0.1:9", ENV], "ConnectionError"),
        (["no_such_module:Policy", ENV], "ModuleNotFoundError"),
        (["cli_targets:Polizy", ENV], "ImportError"),
        ([MODEL, "cli_targets:Noted", "--env-kwargs", '{"nope": 1}'], "TypeError"),
        ([MODEL, "cli_targets:Walks", "--env-kwargs", '{"nope": 1}'], "UnknownParamError"),
        (["cli_targets:Feedback", ENV, "--model-kwargs", '{"nope": 1}'], "UnknownParamError"),
        ([ENV, MODEL], "TypeError"),
        ([MODEL, "cli_targets:Feedback"], "TypeError"),
        ([MODEL, ENV, "Nope-v0"], "ImportError"),
    ],
)
def test_an_error_before_the_first_episode(
    words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Still one document; a file that is there already stays what it is."""
    out = tmp_path / "result.json"
    out.write_text("precious")
    assert main(["run", *words, "--json", "--out", str(out)]) == 1
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["stopped_by"]["type"] == error, said.err
    assert document["episodes"] == [] and f"error: {error}: " in said.err
    assert out.read_text() == "precious"


def test_what_was_made_is_closed(tmp_path: Path) -> None:
    """After the result is out: the model, every env, and the factory of them all."""
    folder = json.dumps({"folder": str(tmp_path)})
    model = ["cli_targets:Feedback", "--model-kwargs", folder]
    env = ["cli_targets:Walks", "--env-kwargs", folder, "--lanes", "2"]
    assert rlmesh("run", *model, *env, "--seeds", "0:3", "-q").status == 0
    for what, often in (("made", 2), ("env closed", 2), ("factory closed", 1), ("model closed", 1)):
        assert (tmp_path / what).read_text() == "x" * often, what
    said = rlmesh("run", *model, *env, "127.0.0.1:9", "--seeds", "0:3", "-q")
    assert said.status == 1
    for what, often in (("made", 4), ("env closed", 4), ("factory closed", 2), ("model closed", 2)):
        assert (tmp_path / what).read_text() == "x" * often, what
    said = rlmesh("run", MODEL, "cli_targets:Stubborn", "--seeds", "0:2", "-q")
    assert said.status == 0 and said.out
    assert "note: closing cli_targets:Stubborn raised OSError: the window is stuck" in said.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_finished(number: int, status: int, tmp_path: Path) -> None:
    """While the env does not answer: the result so far, the journal, and everything closed."""
    gate = Gate(tmp_path)
    (tmp_path / "armed").touch()
    out, journal = tmp_path / "result.json", tmp_path / "run.jsonl"
    kwargs = json.dumps({"folder": str(tmp_path)})
    files = ["--out", str(out), "--journal", str(journal)]
    run = ["run", MODEL, "cli_targets:Gated", "--env-kwargs", kwargs, "--seeds", "0,1,3,2,4"]
    with started(*run, *files, "--json") as child:
        eventually(lambda: gate.entered, "the held step has begun")
        child.signal(number)
        assert child.wait() == status
        document = json.loads("".join(iter(lambda: lines(child), "")))
        errors = child.errors()
    assert "Traceback" not in errors
    assert played(document) == expected()[:3]
    assert document["stopped_by"]["type"] == {130: "KeyboardInterrupt", 143: "SIGTERM"}[status]
    assert json.loads(out.read_text()) == document
    assert "env closed" in notes(tmp_path)
    gate.open()
    said = rlmesh(*run, *files, "--json")
    assert said.status == 0 and played(said.json) == expected()


def lines(child: Child) -> str:
    """Return the next line; nothing at the end."""
    try:
        return child.line()
    except AssertionError:
        return ""


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """SIGKILL in mid-episode: nothing that was finished is run again, and the numbers are equal."""
    gate = Gate(tmp_path)
    (tmp_path / "armed").touch()
    journal = tmp_path / "run.jsonl"
    kwargs = json.dumps({"folder": str(tmp_path)})
    run = ["run", MODEL, "cli_targets:Gated", "--env-kwargs", kwargs, "--seeds", "0,1,3,2,4"]
    with started(*run, "--journal", str(journal)) as child:
        eventually(lambda: gate.entered, "the held step has begun")
        child.kill()
    assert journal.read_bytes().count(b"\n") == 1 + 3
    said = rlmesh(*run, "--journal", str(journal), "--json", "-q")
    assert said.status == 0 and played(said.json) == expected()
    assert journal.read_bytes().count(b"\n") == 1 + 5


def test_a_journal_knows_what_made_the_model_and_the_env(tmp_path: Path) -> None:
    """Another checkpoint is another run, though the class is the same."""
    run = ["run", "cli_targets:Feedback", "cli_targets:Noted", "--seeds", "0:2"]
    run += ["--journal", str(tmp_path / "run.jsonl")]
    first = [*run, "--model-kwargs", '{"gain": 0.5}', "--env-kwargs", '{"fails": 7}']
    assert rlmesh(*first).status == 0
    for other in (run, [*run, "--model-kwargs", '{"gain": 0.25}', *first[-2:]]):
        said = rlmesh(*other)
        assert said.status == 1
        assert 'model_kwargs: the journal has {"gain": 0.5}' in said.err
    assert rlmesh(*first).status == 0


def test_the_result_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """And where it cannot be written, that is known before anything is run."""
    out = tmp_path / "result.json"
    run = ["run", MODEL, ENV, "--seeds", "0:2"]
    assert rlmesh(*run, "--out", str(out)).status == 0
    assert json.loads(out.read_text())["num_episodes"] == 2
    assert notes(tmp_path) == {"result.json"}
    link = tmp_path / "link.json"
    link.symlink_to(out)
    assert rlmesh(*run, "--out", str(link)).status == 0
    assert link.is_symlink()
    for wrong in (tmp_path / "nowhere" / "result.json", tmp_path):
        said = rlmesh(*run, "--out", str(wrong))
        assert said.status == 2 and said.out == ""
    said = rlmesh(*run, "--out", "/dev/full")
    assert said.status == 1 and said.out
    assert "/dev/full was not written" in said.err


def test_retries(tmp_path: Path) -> None:
    """A lost server costs an attempt, which is told."""
    (tmp_path / "armed").touch()
    gate = Gate(tmp_path)
    with ExitStack() as stack:
        held = server_process("evals.eval_envs:Held", folder=str(tmp_path), seed=2)
        address = stack.enter_context(held).address
        other = stack.enter_context(server_process(ENV)).address
        run = ["run", MODEL, address, other, "--seeds", "0,1,3,2,4", "--retries", "1"]
        child = stack.enter_context(started(*run))
        eventually(lambda: gate.entered, "the held step has begun")
        held.kill()
        assert child.wait() == 0, child.errors()
        said = [line for line in iter(lambda: lines(child), "")]
    assert said[0].startswith("episodes      5 of 5, ")
    assert said[-1] == "lost attempts 1, all run again; --json lists them"


def test_nobody_reads_the_result() -> None:
    """A pipe that was closed is status 1 and no traceback."""
    with subprocess.Popen(
        command("run", MODEL, ENV, "--seeds", "0:2", "-q"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_the_numbers_are_those_of_the_library() -> None:
    """To the bit, through JSON."""
    said = rlmesh("run", MODEL, ENV, "--seeds", "0:8", "--json")
    rows = numbers(package.run(feedback, Walk(), seeds=range(8)))
    got = [float(e["reward"]).hex() for e in said.json["episodes"]]
    assert got == [row[3] for row in rows]
