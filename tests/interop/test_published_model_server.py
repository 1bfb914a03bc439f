"""Our loop drives a model that the published Model.serve serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from interop_envs import ENVS
from interop_models import ENV_OF, models
from interop_player import episode_rows
from reference_process import Reference
from support import eventually

import rlmesh
from rlmesh.numpy import Model

SEEDS = [0, 1, 2, 3, 2**40]
OURS = models(Model)

ServeModel = Callable[[str], str]


def answers(address: str) -> bool:
    """Whether there is a server; the published one does not say when it begins to listen."""
    try:
        rlmesh.RemoteModel(address).connect().hang_up()
    except (ConnectionError, TimeoutError):
        return False
    return True


@pytest.fixture
def published(reference: Reference, tmp_path: Path) -> Iterator[ServeModel]:
    """Serve a model of ``interop_models`` with the published package; returns its address."""
    with ExitStack() as stack:

        def start(name: str) -> str:
            path = tmp_path / f"{name}.sock"
            served = stack.enter_context(reference.serving_model(name, f"unix://{path}"))
            eventually(lambda: answers(served.address), "it listens", seconds=30)
            return served.address

        yield start


CASES = [
    ("Steer", 1),
    ("SteerBatch", 1),
    ("Counter", 1),
    ("Chatter", 1),
    ("Parrot", 1),
    ("Plan", 3),
    ("PlanAsked", 3),
    ("PlanBatch", 1),
    ("PlanBatch", 3),
]


@pytest.mark.parametrize(("name", "horizon"), CASES)
def test_same_episodes_as_in_our_process(published: ServeModel, name: str, horizon: int) -> None:
    make = ENVS[ENV_OF.get(name, "tracker")]
    arguments: dict[str, Any] = {"seeds": SEEDS, "execution_horizon": horizon}
    meant = episode_rows(rlmesh.run(OURS[name](), make(), **arguments))
    handle = rlmesh.RemoteModel(published(name))
    link = handle.connect()
    assert link.door == "grpc"
    link.hang_up()
    assert episode_rows(rlmesh.run(handle, make(), **arguments)) == meant
    assert episode_rows(rlmesh.run(handle, [make() for _ in range(3)], **arguments)) == meant
    assert episode_rows(rlmesh.run([handle, handle], [make(), make()], **arguments)) == meant


def test_lanes_share_a_request(published: ServeModel) -> None:
    meant = episode_rows(rlmesh.run(OURS["SteerBatch"](), ENVS["tracker"](), seeds=SEEDS))
    server = rlmesh.EnvServer(ENVS["lanes"]())
    with server:
        server.start()
        handle = rlmesh.RemoteModel(published("SteerBatch"))
        assert episode_rows(rlmesh.run(handle, server.address, seeds=SEEDS)) == meant


def test_what_the_model_raises(published: ServeModel) -> None:
    handle = rlmesh.RemoteModel(published("Raiser"))
    with pytest.raises(rlmesh.ModelException, match=r"^model error: .*KeyError: 'boom'"):
        rlmesh.run(handle, ENVS["tracker"](), seeds=[0])


def test_a_published_server_that_is_killed(reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    with reference.serving_model("Steer", f"unix://{path}") as served:
        eventually(lambda: answers(served.address), "it listens", seconds=30)
        with rlmesh.RemoteModel(served.address).session(ENVS["tracker"]()) as session:
            observation, _ = session.reset(seed=1)
            session.step(session.predict(observation))
            served.kill()
            with pytest.raises(ConnectionError, match="model server at unix://"):
                session.predict(observation)
