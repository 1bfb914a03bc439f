"""rlmesh: know how good a policy is, whichever process its simulator lives in.

Serve a simulator with :class:`EnvServer`, drive it from another process with :class:`RemoteEnv` (or
``rlmesh.numpy.RemoteEnv``), evaluate a policy against it with :func:`run`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmesh import adapters, bridges, gymnasium, numpy, spaces, specs
    from rlmesh._version import __version__
    from rlmesh.envs.remote import RemoteEnv, RemoteVectorEnv
    from rlmesh.envs.server import EnvServer
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
    from rlmesh.wire.meta import sanitize_metadata

__all__ = [
    "NO_ADAPTER",
    "RANDOM_SAMPLE",
    "EnvServer",
    "EnvironmentException",
    "EpisodeFailure",
    "EpisodeResult",
    "Model",
    "ModelException",
    "ModelServer",
    "PredictContext",
    "ProtocolException",
    "RLMeshException",
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
    "WorkflowEditionWarning",
    "__version__",
    "adapters",
    "bridges",
    "gymnasium",
    "numpy",
    "partial_result",
    "predict_seed",
    "run",
    "sanitize_metadata",
    "session",
    "spaces",
    "specs",
]

if sys.byteorder != "little":
    raise RuntimeError("rlmesh requires a little-endian host: values travel as they lie in memory")

_HOMES = {
    "EnvServer": "rlmesh.envs.server",
    "EnvironmentException": "rlmesh.errors",
    "EpisodeResult": "rlmesh.evals.results",
    "Model": "rlmesh.evals.model",
    "ModelException": "rlmesh.errors",
    "ModelServer": "rlmesh.models.server",
    "NO_ADAPTER": "rlmesh.models.model",
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
    "RemoteEnv": "rlmesh.envs.remote",
    "RemoteModel": "rlmesh.evals.model",
    "RemoteVectorEnv": "rlmesh.envs.remote",
    "RunResult": "rlmesh.evals.results",
    "ServeOptions": "rlmesh.transport.options",
    "Tensor": "rlmesh.values.tensor",
    "WorkflowEditionWarning": "rlmesh.errors",
    "__version__": "rlmesh._version",
    "predict_seed": "rlmesh.models.context",
    "run": "rlmesh.evals.run",
    "sanitize_metadata": "rlmesh.wire.meta",
}
_MODULES = frozenset({"adapters", "bridges", "gymnasium", "numpy", "spaces", "specs"})


def __getattr__(name: str) -> Any:
    # Everything is loaded when first used, so that importing rlmesh costs next to nothing.
    if name in _MODULES:
        return importlib.import_module(f"rlmesh.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rlmesh' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
