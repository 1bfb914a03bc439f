"""Published peers know no observation views: they send, and are sent, whole observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from evals.traces import numbers
from evals.view_envs import Witness
from interop_envs import ENVS, Cameras
from interop_expect import record, same_episodes, samples
from reference_process import Reference
from support.relay import Relay

import rlmesh
from rlmesh.numpy import RemoteEnv

SEEDS = [0, 1, 2, 3, 2**40]
FRONT, WRIST = 36 * 48 * 3, 32 * 32 * 3

Played = tuple[list[Any], dict[Any, str]]


def played(env: Any, **arguments: Any) -> Played:
    model = Witness.from_config(name="bilinear")
    return numbers(rlmesh.run(model, env, seeds=SEEDS, **arguments)), model.given


@pytest.fixture(scope="module")
def local() -> Played:
    return played(Cameras())


@pytest.mark.parametrize("name", ["cameras", "camera_lanes"])
def test_a_published_server_sends_everything(
    reference: Reference, name: str, local: Played
) -> None:
    with reference.serving(name) as server, Relay(server.address) as relay:
        assert played(relay.address) == local
        before = relay.received
        with pytest.warns(UserWarning, match="sends whole observations only") as caught:
            assert played(relay.address, pushdown=True) == local
        assert len(caught) == 1
        observations = sum(row[2] + 1 for row in local[0])
        assert relay.received - before > observations * (FRONT + WRIST)
        assert numbers(rlmesh.run(rlmesh.RANDOM_SAMPLE, relay.address, seeds=SEEDS)) == numbers(
            rlmesh.run(rlmesh.RANDOM_SAMPLE, Cameras(), seeds=SEEDS)
        )


def test_beside_a_server_of_ours(
    reference: Reference, serve: Callable[..., str], local: Played
) -> None:
    """Each is asked for what it can give."""
    with reference.serving("cameras") as server:
        endpoints = [server.address, serve("cameras")]
        with pytest.warns(UserWarning, match=f"{server.address}: .* whole observations only"):
            assert played(endpoints, pushdown=True) == local


def test_a_published_client_is_sent_everything(
    reference: Reference, serve: Callable[..., str], local: Played
) -> None:
    """Also on the server that has just shown another client a part."""
    address = serve("cameras")
    env = ENVS["cameras"]()
    script, answers = record(env, [3], samples(env.action_space, 9))
    for pushdown in (False, True):
        assert played(address, pushdown=pushdown) == local
        outcomes = reference.drive([["connect", {"address": address}], *script])
        same_episodes(env.observation_space, outcomes[1:], answers)
    with RemoteEnv(address) as mine:
        assert mine.reset(seed=0)[0]["wrist"].shape == (32, 32, 3)
