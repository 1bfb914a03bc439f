"""A served model gives the numbers of the same model in this process, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from evals.eval_envs import Walk
from evals.traces import traced
from models_served.served_kinds import KINDS, Reused, Studio
from models_served.serving_models import model_process, shut_native_door
from support import ServerProcess, server_process

import rlmesh

SEEDS = [*range(9), 2, 2**40 + 5]
CASES = [
    ("Recall", 1),
    ("Recall", 4),
    ("Echo", 3),
    ("Tally", 1),
    ("Feedback", 1),
    ("Still", 1),
    ("Still", 4),
]
ENVS: dict[str, Callable[[], Any]] = {"Recall": Studio, "Echo": Studio}

Local = Callable[[str, int], list[Any]]


def make_env(kind: str) -> Any:
    return ENVS.get(kind, Walk)()


@pytest.fixture(scope="module")
def local() -> Local:
    """The numbers of a model in this process, on one env in this process."""
    known: dict[tuple[str, int], list[Any]] = {}

    def numbers(kind: str, horizon: int) -> list[Any]:
        if (kind, horizon) not in known:
            known[kind, horizon] = traced(
                KINDS[kind](), make_env(kind), seeds=SEEDS, execution_horizon=horizon
            )
        return known[kind, horizon]

    return numbers


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, list[str]]]:
    """The addresses of two processes for each kind, on unix sockets and TCP."""
    with ExitStack() as stack:
        processes = {
            kind: [stack.enter_context(model_process(kind)) for _ in range(2)]
            for kind in dict(CASES)
        }
        yield {kind: [p.address for p in pair] for kind, pair in processes.items()}


@pytest.fixture(scope="module")
def env_processes() -> Iterator[dict[str, list[ServerProcess]]]:
    """Three env servers for each env."""
    targets = {"Walk": "evals.eval_envs:Walk", "Studio": "models_served.served_kinds:Studio"}
    with ExitStack() as stack:
        yield {
            name: [stack.enter_context(server_process(target)) for _ in range(3)]
            for name, target in targets.items()
        }


def addresses_for(kind: str, processes: dict[str, list[ServerProcess]]) -> list[str]:
    return [p.address for p in processes["Studio" if kind in ENVS else "Walk"]]


@pytest.mark.parametrize("door", ["native", "grpc"])
@pytest.mark.parametrize(("kind", "horizon"), CASES)
def test_one_env(
    kind: str,
    horizon: int,
    door: str,
    served: dict[str, list[str]],
    local: Local,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if door == "grpc":
        shut_native_door(monkeypatch)
    model = rlmesh.RemoteModel(served[kind][0])
    for retries in (0, 1):  # the short way through the loop, and the long one
        found = traced(
            model, make_env(kind), seeds=SEEDS, execution_horizon=horizon, retries=retries
        )
        assert found == local(kind, horizon)
    link = model.connect()
    assert link.door == door
    link.hang_up()


@pytest.mark.parametrize(("kind", "horizon"), CASES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_many_endpoints_and_replicas(
    kind: str,
    horizon: int,
    replicas: int,
    served: dict[str, list[str]],
    env_processes: dict[str, list[ServerProcess]],
    local: Local,
) -> None:
    handles = [rlmesh.RemoteModel(address) for address in served[kind][:replicas]]
    envs = addresses_for(kind, env_processes)
    assert traced(handles, envs, seeds=SEEDS, execution_horizon=horizon) == local(kind, horizon)
    # Fewer endpoints than replicas, and lanes of this process.
    lanes = [make_env(kind) for _ in range(3)]
    assert traced(handles, lanes, seeds=SEEDS, execution_horizon=horizon) == local(kind, horizon)
    assert traced(handles, envs[0], seeds=SEEDS, execution_horizon=horizon) == local(kind, horizon)


@pytest.mark.parametrize(("kind", "horizon"), CASES)
def test_five_clients_at_once(
    kind: str, horizon: int, served: dict[str, list[str]], local: Local
) -> None:
    """Two runs with per-episode state against one served model do not disturb each other, nor five.

    MOD-19, CTX-2: state is kept by episode.
    """

    def client(number: int) -> list[Any]:
        model = rlmesh.RemoteModel(served[kind][0])
        return traced(
            model,
            [make_env(kind) for _ in range(1 + number % 3)],
            seeds=SEEDS,
            execution_horizon=horizon,
            progress=False,
        )

    with ThreadPoolExecutor(5) as pool:
        for found in pool.map(client, range(5)):
            assert found == local(kind, horizon)


@pytest.mark.parametrize("kind", ["Still"])
def test_plans_made_ahead_of_time(
    kind: str,
    served: dict[str, list[str]],
    env_processes: dict[str, list[ServerProcess]],
) -> None:
    """prefetch_lead predicts from the same observation wherever the model lives."""
    arguments: dict[str, Any] = {"seeds": SEEDS, "execution_horizon": 5, "prefetch_lead": 2}
    meant = traced(KINDS[kind](), Walk(), **arguments)
    model = rlmesh.RemoteModel(served[kind][0])
    assert traced(model, Walk(), **arguments) == meant
    assert traced(model, addresses_for(kind, env_processes), **arguments) == meant
    pair = [rlmesh.RemoteModel(address) for address in served[kind]]
    assert traced(pair, addresses_for(kind, env_processes), **arguments) == meant
    assert traced(model, [Reused() for _ in range(4)], **arguments) == meant


def test_memory_and_prefetch_exclude_each_other(served: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="prefetch_lead predicts from an observation"):
        rlmesh.run(
            rlmesh.RemoteModel(served["Recall"][0]),
            Studio(),
            seeds=[0],
            execution_horizon=4,
            prefetch_lead=1,
        )


def test_by_hand(served: dict[str, list[str]], local: Local) -> None:
    """CLI-14: RemoteModel.session, driven by reset, predict and step."""
    rows = []
    with rlmesh.RemoteModel(served["Recall"][0]).session(Studio(), execution_horizon=4) as session:
        for seed in SEEDS:
            observation, _ = session.reset(seed=seed)
            total, steps = 0.0, 0
            while not session.done:
                observation, reward, *_ = session.step(session.predict(observation))
                total, steps = total + reward, steps + 1
            rows.append((seed, steps, total.hex()))
    assert rows == [(row[1], row[2], row[3]) for row in local("Recall", 4)]


@pytest.mark.parametrize("batching", [{"max_batch": 2}, {"batch_wait_ms": 20.0}])
def test_batching_changes_no_number(batching: dict[str, Any], local: Local) -> None:
    with model_process("Feedback", **batching) as process, ThreadPoolExecutor(4) as pool:
        handles = [rlmesh.RemoteModel(process.address) for _ in range(4)]
        runs = [pool.submit(traced, h, Walk(), seeds=SEEDS, progress=False) for h in handles]
        for run in runs:
            assert run.result() == local("Feedback", 1)
