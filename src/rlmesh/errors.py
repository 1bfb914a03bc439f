"""The exceptions rlmesh raises for faults of its own.

::

    RuntimeError
      RLMeshException            base of everything below
        EnvironmentException     the env (or its server) failed; remote traceback in ``__notes__``
        ModelException           the model (or its server) failed; remote traceback in ``__notes__``
        ProtocolException        the peer spoke, but not a protocol this build understands

Everything else is a built-in: ``ConnectionError`` and ``TimeoutError`` (with the address) for a
peer that cannot be reached or stopped answering, ``ValueError`` and ``TypeError`` for bad input.
"""

from __future__ import annotations

__all__ = [
    "EnvironmentException",
    "ModelException",
    "ProtocolException",
    "RLMeshException",
    "WorkflowEditionWarning",
    "add_note",
]


class RLMeshException(RuntimeError):
    """Base class of the exceptions defined by rlmesh."""


class EnvironmentException(RLMeshException):
    """The env raised, crashed, was busy or closed; the remote traceback is in ``__notes__``."""


class ModelException(RLMeshException):
    """The model raised or its server failed; the remote traceback is in ``__notes__``."""


class ProtocolException(RLMeshException):
    """The peer answered, but broke the protocol or speaks another generation of it."""


class WorkflowEditionWarning(UserWarning):
    """An authored class or a server declares no workflow edition."""


def add_note(exc: BaseException, note: str) -> None:
    """Attach ``note`` to ``exc`` as ``BaseException.add_note`` does, on Python 3.10 too."""
    notes = getattr(exc, "__notes__", None)
    if notes is None:
        exc.__notes__ = [note]  # type: ignore[attr-defined]
    else:
        notes.append(note)
