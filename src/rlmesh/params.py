"""Declared parameters of env factories and models: what they take, checked before it is used."""

from rlmesh.envs.binding import PARAM_METADATA_KEY, describe, resolve, to_metadata
from rlmesh.envs.params import (
    MissingParamError,
    Param,
    ParamError,
    ParamSpec,
    UnknownParamError,
    Vector,
)

__all__ = [
    "PARAM_METADATA_KEY",
    "MissingParamError",
    "Param",
    "ParamError",
    "ParamSpec",
    "UnknownParamError",
    "Vector",
    "describe",
    "resolve",
    "to_metadata",
]
