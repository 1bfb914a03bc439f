"""The public surface is one page: what every public module exports, pinned.

A name that comes or goes is a change users see: it is made here, too, and in CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rlmesh

EXPORTED = {
    "rlmesh": """
        DESCRIBE_METADATA_KEY DESCRIBE_SCHEMA_VERSION ENV_RESET_OPTIONS_KEY NO_ADAPTER
        RANDOM_SAMPLE BuildInfo EnvFactory EnvServer EnvironmentException EpisodeFailure
        EpisodeResult Model ModelException ModelServer Param ParamSpec PredictContext
        ProtocolException RLMeshException Reader RemoteEnv RemoteModel RemoteVectorEnv RunContext
        RunHooks RunResult ServeOptions Session StepEvent TelemetryRow Tensor Variant Vector
        WorkflowEditionWarning __version__ adapters bridges build_info checks
        current_workflow_edition describe describe_json gymnasium jax numpy params
        partial_result predict_seed run sanitize_metadata session spaces specs torch trial_index
        types
    """,
    "rlmesh.adapters": """
        ACTION_DELTA_POS ACTION_DELTA_POS_2 ACTION_DELTA_ROT ACTION_DELTA_ROT_2 ACTION_EEF_POS
        ACTION_EEF_POS_2 ACTION_EEF_ROT ACTION_EEF_ROT_2 ACTION_GRIPPER ACTION_GRIPPER_2
        ACTION_JOINT_POS ACTION_JOINT_POS_2 ACTION_JOINT_VEL ACTION_JOINT_VEL_2 BASE
        BASE_ANG_VEL BASE_ROT COMMAND_BASE_VEL EEF_POS EEF_POS_2 EEF_ROT EEF_ROT_2 EEF_WRENCH
        ENV_BRANCH_METADATA_KEY ENV_METADATA_KEY GRIPPER_POS GRIPPER_POS_2 HEAD IMAGE_PRIMARY
        IMAGE_SECONDARY IMAGE_WRIST INSTRUCTION JOINT_POS JOINT_POS_2 JOINT_VEL JOINT_VEL_2
        LEFT_ARM LEFT_LEG MODEL_METADATA_KEY PARTS RIGHT_ARM RIGHT_LEG ROTATION_DIMS TORSO
        Action Actuator Adapter AdapterBase AdapterResolutionError Advisory Concat ConcatPart
        Constant Custom CustomEncoding EnvTags Field FitMode Frame Image ImageLayout ImageTag
        InputNode ModelLeaf ModelSpec ObsLeaf ObsNode ObsTransform ObservationRoles Previous
        Provenance Reference Resample Rotation RotationEncoding RotationTransform Split StackPad
        StackSpec State StateTag Text TextTag check resolve resolve_from_contract tag
    """,
    "rlmesh.adapters.presets": """
        PRESETS groot_libero octo_bridge openpi_droid openpi_libero openvla_bridge
        openvla_libero smolvla_libero
    """,
    "rlmesh.adapters.preview": """
        main preview
    """,
    "rlmesh.bridges": """
        BridgedModel PolicyLink openpi
    """,
    "rlmesh.checks": """
        CheckReport Finding Level check_env
    """,
    "rlmesh.cli": """
        main
    """,
    "rlmesh.errors": """
        EnvironmentException ModelException ProtocolException RLMeshException
        WorkflowEditionWarning add_note
    """,
    "rlmesh.gymnasium": """
        RemoteEnv RemoteVectorEnv
    """,
    "rlmesh.jax": """
        JAX EnvFactory JaxValue Model RemoteEnv RemoteModel RemoteVectorEnv asarray
        ensure_available from_array space_from_spec
    """,
    "rlmesh.numpy": """
        EnvFactory Model NumpyValue RemoteEnv RemoteModel RemoteVectorEnv asarray
        ensure_available from_array space_from_spec
    """,
    "rlmesh.params": """
        PARAM_METADATA_KEY MissingParamError Param ParamError ParamSpec UnknownParamError Vector
        describe resolve to_metadata
    """,
    "rlmesh.serve": """
        main serve_env serve_model startup_marks
    """,
    "rlmesh.spaces": """
        Box Dict Discrete MultiBinary MultiDiscrete Space SpaceSpec Text Tuple
        from_gymnasium_space space_from_spec to_gymnasium_space
    """,
    "rlmesh.specs": """
        AutoresetMode EnvContract SpaceSpec
    """,
    "rlmesh.torch": """
        TORCH EnvFactory Model RemoteEnv RemoteModel RemoteVectorEnv TorchValue as_tensor
        ensure_available from_tensor space_from_spec
    """,
    "rlmesh.types": """
        BatchPredictContext EnvLike EnvTarget HasAddress HasEnvContract InfoDict LocalEnvTarget
        Metadata ModelTarget PredictContext PrimitiveValue SpaceLike SpecArg SupportsMake
        SupportsResetStep Value VectorEnvLike ViewArg
    """,
}
"""Names, in the order of ``__all__``, by public module."""

ROOMS = {
    *("adapters", "bridges", "checks", "cli", "describing", "envs", "evals", "models"),
    *("serve", "spaces", "transport", "values", "wire"),
}
"""Folders; of these, only what EXPORTED lists is public."""


@pytest.mark.parametrize("name", EXPORTED)
def test_a_public_module_exports_what_is_pinned(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == EXPORTED[name].split()
    for exported in module.__all__:
        assert getattr(module, exported) is not None
    assert set(module.__all__) <= set(dir(module))


def test_every_module_beside_the_rooms_is_pinned() -> None:
    """A file that is no ``_private`` one is public: its names are pinned above."""
    folder = Path(str(rlmesh.__file__)).parent
    # describe.py is a command; imported, it is the function rlmesh.describe.
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "describe"}
    public = {f"rlmesh.{stem}" for stem in files if not stem.startswith("_")}
    assert public <= set(EXPORTED), f"pin {sorted(public - set(EXPORTED))}"
    folders = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    assert folders == ROOMS


def objects() -> list[tuple[str, Any]]:
    found: dict[int, tuple[str, Any]] = {}
    for name in EXPORTED:
        module = importlib.import_module(name)
        for exported in module.__all__:
            value = getattr(module, exported)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), (f"{name}.{exported}", value))
    return list(found.values())


@pytest.mark.parametrize(("name", "value"), objects(), ids=lambda v: v if type(v) is str else "")
def test_a_public_thing_says_what_it_is(name: str, value: Any) -> None:
    """Its docstring starts with what the caller gets, and so do those of its public methods."""
    assert inspect.getdoc(value), name
    if not inspect.isclass(value):
        return
    for method, function in vars(value).items():
        if inspect.isfunction(function) and not method.startswith("_"):
            assert inspect.getdoc(getattr(value, method)), f"{name}.{method}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rlmesh' has no attribute 'Modell'"):
        rlmesh.Modell  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = (
        "import sys, rlmesh; heavy = {'grpc', 'google', 'numpy', 'gymnasium', 'torch', 'rich'};"
        "print(*sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []


def test_evaluating_a_local_env_needs_no_transport_and_no_extra() -> None:
    """`run` on an env of this process: no gRPC, no rich."""
    script = (
        "import sys, rlmesh\n"
        "from rlmesh import spaces\n"
        "class Env:\n"
        "    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)\n"
        "    def reset(self, seed=None, options=None): return 0, {}\n"
        "    def step(self, action): return 1, 1.0, True, False, {'success': True}\n"
        "    def close(self): pass\n"
        "assert rlmesh.run(lambda obs: 1, Env(), seeds=[0]).success_rate == 1.0\n"
        "heavy = {'grpc', 'gymnasium', 'torch', 'rich', 'cv2', 'PIL', 'scipy'}\n"
        "print(*sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []
