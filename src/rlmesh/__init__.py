"""rlmesh: know how good a policy is, whichever process its simulator lives in.

Serve a simulator with :class:`EnvServer`, drive it from another process with :class:`RemoteEnv` (or
``rlmesh.numpy.RemoteEnv``), evaluate a policy against it with :func:`run`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmesh import (
        adapters,
        bridges,
        checks,
        gymnasium,
        jax,
        numpy,
        params,
        spaces,
        specs,
        torch,
        types,
    )
    from rlmesh._build import BuildInfo, build_info
    from rlmesh._version import __version__
    from rlmesh.adapters.readers import Reader
    from rlmesh.describing import (
        DESCRIBE_METADATA_KEY,
        DESCRIBE_SCHEMA_VERSION,
        describe,
        describe_json,
    )
    from rlmesh.envs.factory import EnvFactory
    from rlmesh.envs.params import Param, ParamSpec, Vector
    from rlmesh.envs.remote import RemoteEnv, RemoteVectorEnv
    from rlmesh.envs.server import EnvServer
    from rlmesh.envs.trials import ENV_RESET_OPTIONS_KEY, trial_index
    from rlmesh.envs.variants import Variant
    from rlmesh.errors import (
        EnvironmentException,
        ModelException,
        ProtocolException,
        RLMeshException,
        WorkflowEditionWarning,
    )
    from rlmesh.evals.engine import partial_result
    from rlmesh.evals.hooks import RunContext, RunHooks, StepEvent
    from rlmesh.evals.model import Model, RemoteModel
    from rlmesh.evals.policy import RANDOM_SAMPLE
    from rlmesh.evals.results import EpisodeFailure, EpisodeResult, RunResult
    from rlmesh.evals.run import run, session
    from rlmesh.evals.session import Session
    from rlmesh.evals.telemetry import TelemetryRow
    from rlmesh.models.context import PredictContext, predict_seed
    from rlmesh.models.model import NO_ADAPTER
    from rlmesh.models.server import ModelServer
    from rlmesh.transport.options import ServeOptions
    from rlmesh.values.tensor import Tensor
    from rlmesh.wire.editions import current_workflow_edition
    from rlmesh.wire.meta import sanitize_metadata

    __build__: str

__all__ = [
    "DESCRIBE_METADATA_KEY",
    "DESCRIBE_SCHEMA_VERSION",
    "ENV_RESET_OPTIONS_KEY",
    "NO_ADAPTER",
    "RANDOM_SAMPLE",
    "BuildInfo",
    "EnvFactory",
    "EnvServer",
    "EnvironmentException",
    "EpisodeFailure",
    "EpisodeResult",
    "Model",
    "ModelException",
    "ModelServer",
    "Param",
    "ParamSpec",
    "PredictContext",
    "ProtocolException",
    "RLMeshException",
    "Reader",
    "RemoteEnv",
    "RemoteModel",
    "RemoteVectorEnv",
    "RunContext",
    "RunHooks",
    "RunResult",
    "ServeOptions",
    "Session",
    "StepEvent",
    "TelemetryRow",
    "Tensor",
    "Variant",
    "Vector",
    "WorkflowEditionWarning",
    "__version__",
    "adapters",
    "bridges",
    "build_info",
    "checks",
    "current_workflow_edition",
    "describe",
    "describe_json",
    "gymnasium",
    "jax",
    "numpy",
    "params",
    "partial_result",
    "predict_seed",
    "run",
    "sanitize_metadata",
    "session",
    "spaces",
    "specs",
    "torch",
    "trial_index",
    "types",
]

if sys.byteorder != "little":
    raise RuntimeError("rlmesh requires a little-endian host: values travel as they lie in memory")

_HOMES = {
    "BuildInfo": "rlmesh._build",
    "DESCRIBE_METADATA_KEY": "rlmesh.describing",
    "DESCRIBE_SCHEMA_VERSION": "rlmesh.describing",
    "ENV_RESET_OPTIONS_KEY": "rlmesh.envs.trials",
    "EnvFactory": "rlmesh.envs.factory",
    "EnvServer": "rlmesh.envs.server",
    "EnvironmentException": "rlmesh.errors",
    "EpisodeResult": "rlmesh.evals.results",
    "Model": "rlmesh.evals.model",
    "ModelException": "rlmesh.errors",
    "ModelServer": "rlmesh.models.server",
    "NO_ADAPTER": "rlmesh.models.model",
    "Param": "rlmesh.envs.params",
    "ParamSpec": "rlmesh.envs.params",
    "PredictContext": "rlmesh.models.context",
    "ProtocolException": "rlmesh.errors",
    "EpisodeFailure": "rlmesh.evals.results",
    "RANDOM_SAMPLE": "rlmesh.evals.policy",
    "RunContext": "rlmesh.evals.hooks",
    "RunHooks": "rlmesh.evals.hooks",
    "Session": "rlmesh.evals.session",
    "StepEvent": "rlmesh.evals.hooks",
    "TelemetryRow": "rlmesh.evals.telemetry",
    "partial_result": "rlmesh.evals.engine",
    "session": "rlmesh.evals.run",
    "RLMeshException": "rlmesh.errors",
    "Reader": "rlmesh.adapters.readers",
    "RemoteEnv": "rlmesh.envs.remote",
    "RemoteModel": "rlmesh.evals.model",
    "RemoteVectorEnv": "rlmesh.envs.remote",
    "RunResult": "rlmesh.evals.results",
    "ServeOptions": "rlmesh.transport.options",
    "Tensor": "rlmesh.values.tensor",
    "Variant": "rlmesh.envs.variants",
    "Vector": "rlmesh.envs.params",
    "WorkflowEditionWarning": "rlmesh.errors",
    "__version__": "rlmesh._version",
    "build_info": "rlmesh._build",
    "current_workflow_edition": "rlmesh.wire.editions",
    "describe": "rlmesh.describing",
    "describe_json": "rlmesh.describing",
    "predict_seed": "rlmesh.models.context",
    "run": "rlmesh.evals.run",
    "sanitize_metadata": "rlmesh.wire.meta",
    "trial_index": "rlmesh.envs.trials",
}
_MODULES = frozenset(
    {
        *("adapters", "bridges", "checks", "gymnasium", "jax", "numpy", "params", "spaces"),
        *("specs", "torch", "types"),
    }
)


def _load(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"rlmesh.{name}")
    home = _HOMES.get(name)
    if name == "__build__":
        return _deprecated_build()
    if home is None:
        raise AttributeError(f"module 'rlmesh' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


# Everything is loaded when first used, so that importing rlmesh costs next to nothing. A type
# checker reads the imports above; seeing this, it would take a misspelt name for Any.
if not TYPE_CHECKING:
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _deprecated_build() -> str:
    import warnings

    from rlmesh.wire.editions import EDITION

    warnings.warn(
        "rlmesh.__build__ is deprecated and will go; use rlmesh.build_info().workflow_edition",
        DeprecationWarning,
        stacklevel=3,
    )
    return EDITION
