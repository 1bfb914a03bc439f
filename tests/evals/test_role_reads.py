"""Reading observations by role, in a session and in a step event: the RD rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Walk, feedback
from support import serving

import rlmesh
import rlmesh.adapters.readers
from rlmesh import adapters as adapt
from rlmesh.adapters import AdapterResolutionError
from rlmesh.numpy import RemoteEnv

ACTION = adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2))


class Camera(gymnasium.Env):  # type: ignore[type-arg]
    """A camera, a hand with a gripper in one leaf, and a task; all of them show the step.

    Args:
        gripper_first: where the gripper is in ``hand``, and said to be.
    """

    def __init__(self, gripper_first: bool = False) -> None:
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            {
                "rgb": box(0, 255, (4, 4, 3), np.uint8),
                "hand": box(-9, 9, (4,), np.float32),
                "task": gymnasium.spaces.Text(20),
            }
        )
        self.action_space = box(-1, 1, (2,), np.float32)
        self.render_mode = "rgb_array"
        self.steps = 0
        self.gripper_first = gripper_first
        fields = [adapt.Field(adapt.EEF_POS, 3), adapt.Field(adapt.GRIPPER_POS, 1)]
        tags = adapt.EnvTags(
            {
                "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY),
                "hand": adapt.Split(*(fields[::-1] if gripper_first else fields)),
                "task": adapt.TextTag(adapt.INSTRUCTION),
            },
            ACTION,
        )
        adapt.tag(self, tags)

    def observation(self) -> dict[str, Any]:
        hand = [self.steps, 1, 2, 3] if self.gripper_first else [1, 2, 3, self.steps]
        return {
            "rgb": np.full((4, 4, 3), self.steps, np.uint8),
            "hand": np.array(hand, np.float32),
            "task": f"step{self.steps}",
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation(), 0.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return np.full((8, 8, 3), self.steps, np.uint8)


@pytest.fixture(params=["local", "remote", "handle"])
def env(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        if request.param == "local":
            yield Camera()
            return
        address = stack.enter_context(serving(Camera())).address
        handle = request.param == "handle"
        yield stack.enter_context(RemoteEnv(address)) if handle else address


@pytest.fixture
def session(env: Any) -> Iterator[rlmesh.Session]:
    with rlmesh.session(rlmesh.RANDOM_SAMPLE, env) as session:
        yield session


def test_a_reader_gives_what_was_asked_for_by_role(session: rlmesh.Session) -> None:
    """RD-1, RD-5: the env's own form for a role, a conversion for a leaf, in the order asked."""
    observation, _ = session.reset()
    read = session.reader(adapt.GRIPPER_POS, adapt.IMAGE_PRIMARY, adapt.Text(adapt.INSTRUCTION))
    assert read.roles == (adapt.GRIPPER_POS, adapt.IMAGE_PRIMARY, adapt.INSTRUCTION)
    before = {key: np.array(leaf) for key, leaf in observation.items()}
    values = read(observation)
    assert list(values) == list(read.roles)
    assert values[adapt.GRIPPER_POS].tolist() == [0.0]
    assert values[adapt.IMAGE_PRIMARY].shape == (4, 4, 3)
    assert values[adapt.INSTRUCTION] == "step0"
    values[adapt.IMAGE_PRIMARY][:] = 77
    for key, leaf in observation.items():
        np.testing.assert_array_equal(leaf, before[key])


def test_read_gives_one_value_and_resolves_once(
    session: rlmesh.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RD-2."""
    made: list[Any] = []
    real = rlmesh.adapters.readers.reader

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments[2:])
        return real(*arguments, **options)

    monkeypatch.setattr(rlmesh.adapters.readers, "reader", counted)
    observation, _ = session.reset()
    small = adapt.Image(adapt.IMAGE_PRIMARY, size=2)
    for _ in range(3):
        assert session.read(observation, adapt.EEF_POS).tolist() == [1, 2, 3]
        assert session.read(observation, small).shape == (2, 2, 3)
        assert session.read(observation, adapt.Image(adapt.IMAGE_PRIMARY, size=2)).max() == 0
        observation, *_ = session.step([0.0, 0.0])
        observation = {**observation, "rgb": np.zeros((4, 4, 3), np.uint8)}
    assert made == [(adapt.EEF_POS,), (small,)]


def test_the_roles_an_env_offers(session: rlmesh.Session) -> None:
    """RD-3."""
    roles = session.observation_roles()
    assert roles.images == (adapt.IMAGE_PRIMARY,)
    assert roles.states == (adapt.EEF_POS, adapt.GRIPPER_POS)
    assert roles.texts == (adapt.INSTRUCTION,)


def test_where_pictures_come_from(session: rlmesh.Session) -> None:
    """RD-4."""
    session.reset()
    session.step([0.0, 0.0])
    sources = session.frame_sources()
    assert sources.roles == (adapt.IMAGE_PRIMARY,)
    assert sources.labels == (adapt.IMAGE_PRIMARY, "render")
    assert sources.render is not None
    np.testing.assert_array_equal(sources.render(), np.full((8, 8, 3), 1, np.uint8))


def test_several_lanes_have_no_render_to_show() -> None:
    with rlmesh.session(rlmesh.RANDOM_SAMPLE, [Camera(), Camera()]) as session:
        sources = session.frame_sources()
        assert (sources.labels, sources.render) == ((adapt.IMAGE_PRIMARY,), None)


def test_what_cannot_be_read_is_refused_by_name(session: rlmesh.Session) -> None:
    observation, _ = session.reset()
    with pytest.raises(AdapterResolutionError, match='unknown role "image/wrist"'):
        session.read(observation, adapt.IMAGE_WRIST)
    with pytest.raises(AdapterResolutionError, match="asked for twice"):
        session.reader(adapt.EEF_POS, adapt.State(adapt.EEF_POS))
    with pytest.raises(TypeError, match="at least one role"):
        session.reader()
    for item in (3, {"role": adapt.EEF_POS}):
        with pytest.raises(TypeError, match="expects role strings or Image, State and Text"):
            session.read(observation, item)


def test_an_env_without_tags_says_so() -> None:
    """RD-1, RD-3: no roles, and a read says what is missing."""
    with rlmesh.session(feedback, Walk()) as session:
        observation, _ = session.reset()
        assert session.observation_roles() == adapt.ObservationRoles()
        assert session.frame_sources().labels == ()
        for read in (lambda: session.read(observation, "x"), lambda: session.reader("x")):
            with pytest.raises(AdapterResolutionError, match=r"carries no adapter tags.*tag\(env"):
                read()


def test_values_come_in_the_framework_of_the_handle() -> None:
    """RD-5."""
    with (
        serving(Camera()) as server,
        rlmesh.RemoteEnv(server.address) as native,
        rlmesh.session(rlmesh.RANDOM_SAMPLE, native) as session,
    ):
        observation, _ = session.reset()
        assert isinstance(session.read(observation, adapt.EEF_POS), rlmesh.Tensor)


class Reading(rlmesh.RunHooks):
    """Reads in every step, and once more after the run."""

    def __init__(self) -> None:
        self.values: list[tuple[int, Any, Any]] = []
        self.events: list[rlmesh.StepEvent] = []
        self.context: list[Any] = []

    def on_run_start(self, context: rlmesh.RunContext) -> None:
        self.context.append(context.frame_sources().roles)

    def on_step(self, event: rlmesh.StepEvent) -> None:
        gripper = event.read(adapt.GRIPPER_POS)
        assert gripper is not None
        self.values.append((event.step, float(gripper[0]), event.read(adapt.INSTRUCTION)))  # type: ignore[index]
        self.events.append(event)


@pytest.mark.parametrize("several", [False, True])
def test_a_step_event_reads_its_own_observation(several: bool) -> None:
    """HK-3, step event page: bound to the observation, resolved only if it is called."""
    hook = Reading()
    env = [Camera(), Camera(gripper_first=True)] if several else Camera()
    rlmesh.run(rlmesh.RANDOM_SAMPLE, env, seeds=[0, 1], hooks=hook)
    assert sorted(hook.values) == sorted((s, float(s), f"step{s}") for s in (0, 0, 1, 1, 2, 2))
    assert hook.context == [(adapt.IMAGE_PRIMARY,)]
    assert [float(e.read(adapt.GRIPPER_POS)[0]) for e in hook.events] == [  # type: ignore[index]
        value for _, value, _ in hook.values
    ]


def test_nothing_is_resolved_for_an_event_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a reader was made")

    monkeypatch.setattr(rlmesh.adapters.readers, "reader", never)

    class Watching(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            assert callable(event.read)

    assert rlmesh.run(rlmesh.RANDOM_SAMPLE, Camera(), hooks=Watching()).total_steps == 3


def test_an_event_of_an_env_without_tags_says_what_is_missing() -> None:
    class Asking(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            event.read(adapt.EEF_POS)

    with pytest.raises(AdapterResolutionError, match="carries no adapter tags"):
        rlmesh.run(feedback, Walk(), seeds=[0], hooks=Asking())
