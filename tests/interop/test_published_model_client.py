"""The published RemoteModel, in its loop and its session, drives our ModelServer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from interop_envs import ENVS
from interop_models import ENV_OF, models
from interop_player import episode_rows
from reference_process import Reference

import rlmesh
from rlmesh.numpy import Model

Serve = Callable[..., str]

SEEDS = [0, 1, 2, 3, 2**40]
OURS = models(Model)


@pytest.fixture
def serve_model() -> Iterator[Callable[[str], str]]:
    """Serve a model of ``interop_models`` with our server; returns its address."""
    servers: list[Any] = []

    def start(name: str, address: str | None = None) -> str:
        server = rlmesh.ModelServer(OURS[name](), address)
        servers.append(server)
        server.start()
        return server.address

    yield start
    for server in servers:
        server.shutdown()


def meant(name: str, horizon: int) -> dict[str, Any]:
    """What the same model comes to in our process."""
    env = ENVS[ENV_OF.get(name, "tracker")]()
    result = rlmesh.run(OURS[name](), env, seeds=SEEDS, execution_horizon=horizon)
    return {"episodes": episode_rows(result)}


@pytest.mark.parametrize("loop", ["run", "session"])
@pytest.mark.parametrize(
    ("name", "horizon"),
    [
        ("Steer", 1),
        ("SteerBatch", 1),
        ("Counter", 1),
        ("Chatter", 1),
        ("Parrot", 1),
        *((name, horizon) for name in ("Plan", "PlanAsked", "PlanBatch") for horizon in (1, 3)),
    ],
)
def test_same_episodes_as_in_our_process(
    reference: Reference,
    serve: Serve,
    serve_model: Serve,
    name: str,
    horizon: int,
    loop: str,
) -> None:
    done = reference.evaluate_served(
        serve_model(name),
        serve(ENV_OF.get(name, "tracker")),
        loop=loop,
        horizon=horizon,
        seeds=SEEDS,
    )
    assert done == meant(name, horizon)


def test_what_the_model_raises(reference: Reference, serve: Serve, serve_model: Serve) -> None:
    """MOD-17."""
    model = serve_model("Raiser")
    done = reference.evaluate_served(model, serve("tracker"), seeds=[0])
    assert "RuntimeError" in done["raised"]
    assert done["text"].startswith("model error: ")
    assert "KeyError: 'boom'" in done["text"]


def test_a_horizon_beyond_the_limit(reference: Reference, serve: Serve, serve_model: Serve) -> None:
    done = reference.evaluate_served(serve_model("Plan"), serve("tracker"), horizon=2000, seeds=[0])
    assert "episodes" not in done


def test_published_clients_beside_ours(
    reference: Reference, serve: Serve, serve_model: Serve
) -> None:
    address = serve_model("PlanBatch")
    with ThreadPoolExecutor(4) as pool:
        theirs = [
            pool.submit(
                reference.evaluate_served, address, serve("tracker"), horizon=3, seeds=SEEDS
            )
            for _ in range(2)
        ]
        ours = pool.submit(
            rlmesh.run,
            rlmesh.RemoteModel(address),
            ENVS["tracker"](),
            seeds=SEEDS,
            execution_horizon=3,
            progress=False,
        )
        wanted = meant("PlanBatch", 3)
        assert [run.result() for run in theirs] == [wanted, wanted]
        assert {"episodes": episode_rows(ours.result())} == wanted
