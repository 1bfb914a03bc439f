"""A server that is asked for a part of its observations, by whoever; and by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from evals.view_envs import Rig, Witness, rigs
from support import RawPeer, serving
from support.trees import assert_same

import rlmesh
from rlmesh import spaces
from rlmesh.adapters.pushdown import pushable
from rlmesh.envs.link import LinkOptions, ScalarLink
from rlmesh.numpy import RemoteEnv
from rlmesh.transport.address import parse_address
from rlmesh.transport.framing import FrameKind
from rlmesh.values import NUMPY, ObservationView
from rlmesh.wire import messages
from rlmesh.wire.handshake import OBSERVATION_VIEW
from rlmesh.wire.views import fill_view

SPACE: Any = spaces.from_gymnasium_space(Rig().observation_space)
ARM, DEPTH, FRONT, SIDE, TASK, WRIST = range(6)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(Rig()) as server:
        yield server.address


def offer() -> Any:
    """Return the front camera as a policy wants it."""
    from rlmesh.adapters import resolve_from_contract

    with rlmesh.EnvServer(Rig()) as server:
        model = Witness.from_config(name="bilinear")
        adapter = resolve_from_contract(server.env_contract, model.spec)
    (image,) = pushable(adapter.plan, SPACE)
    return image


class Client(RawPeer):
    """A peer that has shaken hands."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.send(self.hello(), self.handshake())
        answer = messages.env.HandshakeResponse.FromString(self.receive().header)
        assert answer.base.capabilities[OBSERVATION_VIEW] == "true"

    def ask(self, request: Any) -> tuple[Any, list[int]]:
        """Return the response, and the sizes of its leaves."""
        self.send(self.frame(FrameKind.JOIN, request.SerializeToString()))
        frame = self.receive()
        assert frame.kind == FrameKind.JOIN, frame
        response = messages.env.JoinResponse.FromString(frame.header)
        return response, [leaf.nbytes for leaf in frame.leaves]

    def configure(self, view: ObservationView | None = None, **fields: Any) -> Any:
        """Ask for a view; ``fields`` are set in its first image afterwards."""
        request = messages.env.JoinRequest()
        request.configure.SetInParent()
        if view is not None:
            fill_view(request.configure.view, view)
        for name, value in fields.items():
            getattr(request.configure.view.images[0], name)[:] = value
        return self.ask(request)[0]

    def reset(self) -> list[int]:
        request = messages.env.JoinRequest()
        request.reset.seeds.append(0)
        response, sizes = self.ask(request)
        assert response.WhichOneof("kind") == "reset", response
        return sizes


WHOLE = [8, 12 * 16 * 4, 36 * 48 * 3, 30 * 40 * 3, 27, 32 * 32 * 3]


def test_a_view_holds_until_the_next_one(address: str) -> None:
    with Client(address) as client:
        assert client.reset() == WHOLE
        assert client.configure(ObservationView((WRIST, ARM))).WhichOneof("kind") == "configure"
        assert client.reset() == [WHOLE[ARM], WHOLE[WRIST]]
        client.configure(ObservationView(()))
        assert client.reset() == []
        client.configure(ObservationView((FRONT,), (offer(),)))
        assert client.reset() == [18 * 24 * 3]
        client.configure()
        assert client.reset() == WHOLE
        client.configure(ObservationView((TASK,)))
    with Client(address) as client:
        assert client.reset() == WHOLE


IMAGE = offer()
LARGE = {**IMAGE.steps[0], "height": 60000, "width": 60000}
HOSTILE: dict[str, tuple[ObservationView, dict[str, Any]]] = {
    "no such leaf": (ObservationView((ARM, 6)), {}),
    "far out of range": (ObservationView((2**32 - 1,)), {}),
    "named twice": (ObservationView((ARM, ARM)), {}),
    "not sent": (ObservationView((ARM,), (IMAGE,)), {}),
    "processed twice": (ObservationView((FRONT,), (IMAGE, IMAGE)), {}),
    "no image": (ObservationView((ARM,), (IMAGE,)), {}),
    "a float image": (ObservationView((DEPTH,), (IMAGE,)), {}),
    "no shape": (ObservationView((FRONT,), (IMAGE,)), {"shape": []}),
    "four axes": (ObservationView((FRONT,), (IMAGE,)), {"shape": [1, 1, 1, 1]}),
    "another shape": (ObservationView((FRONT,), (IMAGE,)), {"shape": [2**31, 2**31, 3]}),
}
STEPS: dict[str, list[Any]] = {
    "no steps": [],
    "too many steps": [{"step": "flip_180"}] * 1000,
    "unknown step": [{"step": "exec", "code": "raise SystemExit"}],
    "no step": [{}],
    "a huge frame": [LARGE],
    "a list for a number": [{**IMAGE.steps[0], "height": [18]}],
    "a map for a word": [{**IMAGE.steps[0], "fit": {"a": 1}}],
    "an array for a word": [{**IMAGE.steps[0], "resample": np.arange(3)}],
    "null": [{**IMAGE.steps[0], "width": None}],
    "nested": [{"step": {"step": {"step": "resize"}}}],
}


def hostile(name: str) -> tuple[ObservationView, dict[str, Any]]:
    if name in HOSTILE:
        view, fields = HOSTILE[name]
        leaf = {"no image": ARM, "a float image": DEPTH}.get(name, IMAGE.leaf)
    else:
        view, fields, leaf = ObservationView((FRONT,), (IMAGE,)), {}, IMAGE.leaf
    images = []
    for image in view.images:
        steps = tuple(STEPS.get(name, image.steps))
        images.append(type(image)(leaf, image.shape, steps, image.libraries, image.digest))
    return ObservationView(view.leaves, tuple(images)), fields


@pytest.mark.parametrize("name", [*HOSTILE, *STEPS])
def test_a_view_that_is_none_is_refused_and_the_session_goes_on(name: str, address: str) -> None:
    view, fields = hostile(name)
    with Client(address) as client:
        client.configure(ObservationView((ARM, TASK)))
        response = client.configure(view, **fields)
        assert response.WhichOneof("kind") == "error"
        assert response.error.is_recoverable
        assert response.error.code == messages.env.ENV_ERROR_CODE_INVALID_ACTION
        assert "leaf" in response.error.message
        assert len(response.error.message) < 500
        assert client.reset() == [WHOLE[ARM], WHOLE[TASK]]  # what was asked before still holds
    with RemoteEnv(address) as env:
        assert env.reset(seed=0)[0]["wrist"].shape == (32, 32, 3)


def test_bytes_that_are_no_view_end_the_session_and_not_the_server(address: str) -> None:
    good = messages.env.JoinRequest()
    fill_view(good.configure.view, ObservationView((FRONT,), (IMAGE,)))
    data = good.SerializeToString()
    for cut in range(1, len(data), 7):
        with Client(address) as client:
            client.send(RawPeer.frame(FrameKind.JOIN, data[:-cut] + b"\xff" * cut))
            response = client.receive_response()
            assert response.WhichOneof("kind") in ("error", "configure")
    with RemoteEnv(address) as env:
        assert env.reset(seed=0)[0]["wrist"].shape == (32, 32, 3)


def link_to(address: str) -> ScalarLink:
    return ScalarLink(parse_address(address), LinkOptions(NUMPY, 10.0, 60.0, "", 1 << 28))


def test_a_client_hears_why_a_view_is_refused(address: str) -> None:
    link = link_to(address)
    link.look(ObservationView((FRONT, 9)))
    with pytest.raises(ValueError, match="expected leaves below 6, got leaf 9"):
        link.send_reset(0, None)
    link.look(None)
    link.send_reset(0, None)
    assert link.recv_reset()[0]["front"].shape == (36, 48, 3)
    link.close()


def test_each_view_gives_the_leaves_of_the_whole(address: str) -> None:
    link = link_to(address)
    link.send_reset(4, None)
    whole, _ = link.recv_reset()
    for leaves in ((ARM,), (FRONT, TASK), (WRIST, SIDE, DEPTH), tuple(range(6))):
        link.look(ObservationView(leaves))
        link.send_reset(4, None)
        part, _ = link.recv_reset()
        keys = [list(SPACE)[leaf] for leaf in sorted(leaves)]
        assert_same(part, {key: whole[key] for key in keys})
    link.close()


def test_what_is_not_sent_is_not_checked() -> None:
    """A camera that breaks its space is nobody's business until somebody reads it."""

    class Broken(Rig):
        def _look(self) -> dict[str, Any]:
            return {**super()._look(), "wrist": "no picture"}

    for env in (Broken(), [Broken(), Broken()]):
        with serving(env) as server:
            model = Witness.from_config(name="bilinear")
            for pushdown in (False, True):
                found = rlmesh.run(model, server.address, seeds=range(3), pushdown=pushdown)
                assert found.num_episodes == 3
    with (
        serving(Broken()) as server,
        RemoteEnv(server.address) as env,
        pytest.raises(rlmesh.EnvironmentException, match="wrist"),
    ):
        env.reset(seed=0)


def test_lanes_of_a_server_share_the_view() -> None:
    with serving(rigs(3)) as server, Client(server.address) as client:
        client.configure(ObservationView((ARM, FRONT), (IMAGE,)))
        request = messages.env.JoinRequest()
        request.reset.env_indices.extend([2, 0])
        request.reset.seeds.extend([1, 2])
        response, sizes = client.ask(request)
        assert response.WhichOneof("kind") == "reset"
        assert sizes == [2 * 8, 2 * 18 * 24 * 3]
