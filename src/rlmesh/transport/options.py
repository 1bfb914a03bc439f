"""`ServeOptions`: how long a server lives and who may use it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT
from rlmesh.wire.editions import check_edition

__all__ = ["ServeOptions", "check_seconds", "checked_options"]

_LONGEST_TOKEN = 8192  # of an HTTP/2 header value


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Lifecycle of a served env or model. Keyword-only and immutable.

    Attributes:
        idle_timeout_seconds: stop after that long without a request. Armed when the server starts,
            restarted by every request, held by a running one. None (default): never.
        drain_timeout_seconds: how long ``shutdown`` waits for a running request. None (default): as
            long as it takes.
        close_timeout_seconds: how long it then waits for the ``close`` of the env or model. None
            (default): as long as it takes.
        allow_remote_shutdown: honour a client's ``shutdown()``. Off by default; the environment
            variable ``RLMESH_ALLOW_REMOTE_SHUTDOWN=1`` turns it on as well.
        token: bearer token, in printable ASCII, that every request must show. None or ``""``
            (default): no authentication.
        max_message_bytes: largest single message accepted or sent. Default 256 MiB.
        workflow_edition: the edition that what is served was authored against, unless the call or
            ``RLMESH_WORKFLOW_EDITION`` says otherwise. None (default): what its class or the
            project's ``pyproject.toml`` declares, else the newest.

    Raises:
        ValueError: a timeout or the message limit is not positive and finite; a token that no HTTP
            header can hold; an edition that this build cannot run.
        TypeError: a value of the wrong type.

    Example:
        >>> ServeOptions(idle_timeout_seconds=300, token="s3cret").idle_timeout_seconds
        300
    """

    idle_timeout_seconds: float | None = None
    drain_timeout_seconds: float | None = None
    close_timeout_seconds: float | None = None
    allow_remote_shutdown: bool = False
    token: str | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_LIMIT
    workflow_edition: str | None = None

    def __post_init__(self) -> None:
        for name in ("idle_timeout_seconds", "drain_timeout_seconds", "close_timeout_seconds"):
            check_seconds(name, getattr(self, name))
        limit = self.max_message_bytes
        if isinstance(limit, bool) or not isinstance(limit, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"max_message_bytes must be an int, got {type(limit).__name__}")
        if limit <= 0:
            raise ValueError(f"max_message_bytes must be positive, got {limit}")
        if self.token is not None and not isinstance(self.token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"token must be a str or None, got {type(self.token).__name__}")
        token = self.token or ""
        if len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
            raise ValueError(
                f"token must be at most {_LONGEST_TOKEN} printable ASCII characters, which is what "
                "every client can send"
            )
        if self.workflow_edition is not None:
            check_edition(self.workflow_edition)

    @property
    def remote_shutdown_allowed(self) -> bool:
        """Whether a client may stop the server, by option or by environment variable."""
        return self.allow_remote_shutdown or os.environ.get("RLMESH_ALLOW_REMOTE_SHUTDOWN") == "1"

    def __repr__(self) -> str:
        shown = "'***'" if self.token else "None"
        return (
            f"ServeOptions(idle_timeout_seconds={self.idle_timeout_seconds}, "
            f"drain_timeout_seconds={self.drain_timeout_seconds}, "
            f"close_timeout_seconds={self.close_timeout_seconds}, "
            f"allow_remote_shutdown={self.allow_remote_shutdown}, token={shown}, "
            f"max_message_bytes={self.max_message_bytes}, "
            f"workflow_edition={self.workflow_edition!r})"
        )


def checked_options(options: ServeOptions | None) -> ServeOptions:
    """Return ``options``, or the defaults; TypeError for anything else."""
    if options is not None and not isinstance(options, ServeOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"options must be ServeOptions, got {type(options).__name__}")
    return options or ServeOptions()


def check_seconds(name: str, value: float | None) -> None:
    """Raise unless ``value`` is None or a positive, finite number of seconds."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number of seconds or None, got {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(
            f"{name} must be positive and finite, got {value}; None waits without a bound"
        )
