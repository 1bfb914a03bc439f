"""`RemoteModel`: a policy that another process serves."""

from __future__ import annotations

import os
from typing import ClassVar

from rlmesh.envs.link import LinkOptions
from rlmesh.envs.remote import CONNECT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS
from rlmesh.models.link import ModelLink
from rlmesh.transport.address import make_address
from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT
from rlmesh.transport.options import check_seconds
from rlmesh.values import NATIVE, NUMPY, Framework
from rlmesh.wire.editions import wanted_edition

__all__ = ["RemoteModel"]


class RemoteModel:
    """A handle of a served model, in place of a model in ``rlmesh.run`` and ``rlmesh.session``.

    Nothing is dialled before a session uses it. Each session has a connection of its own, so one
    handle can drive several envs. A list of handles are replicas of one model, among which the
    lanes of a run are divided.

    Args:
        address: ``"host:port"``, ``"tcp://..."``, ``"http://..."`` or ``"unix:///path"``.
        host, port, path, transport: the same, in parts.
        connect_timeout_seconds: bound on dialling and the handshake. Default 10 s; None waits for
            ever.
        request_timeout_seconds: bound on every prediction. Default 300 s; None waits for ever. A
            prediction that runs into it loses the session, since its answer may still come.
        token: the server's bearer token, if it asks for one.
        max_message_bytes: largest single message. Default 256 MiB.

    Raises:
        ValueError: no endpoint, or a bad one.

    Example:
        >>> import rlmesh
        >>> rlmesh.RemoteModel("127.0.0.1:50052")
        RemoteModel(address='tcp://127.0.0.1:50052')
    """

    _framework: ClassVar[Framework] = NATIVE

    def __init__(
        self,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        connect_timeout_seconds: float | None = CONNECT_TIMEOUT_SECONDS,
        request_timeout_seconds: float | None = REQUEST_TIMEOUT_SECONDS,
        token: str | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_LIMIT,
    ) -> None:
        self._framework.ensure_available()
        self._where = make_address(
            address, host=host, port=port, path=path, transport=transport, bind=False
        )
        check_seconds("connect_timeout_seconds", connect_timeout_seconds)
        check_seconds("request_timeout_seconds", request_timeout_seconds)
        self._options = LinkOptions(
            NUMPY,
            connect_timeout_seconds,
            request_timeout_seconds,
            token or "",
            max_message_bytes,
            wanted_edition(),
        )

    @property
    def address(self) -> str:
        """The server's address with its scheme."""
        return str(self._where)

    def connect(self) -> ModelLink:
        """Return a new connection, for those who drive many of them.

        Raises:
            ConnectionError, TimeoutError: nobody answers, or the server refuses; with the address.
        """
        return ModelLink(self._where, self._options)

    def shutdown(self, reason: str = "owner shutdown") -> bool:
        """Ask the endpoint to stop.

        Returns:
            Whether it will; False unless the server allows remote shutdown.
        """
        link = self.connect()
        try:
            return link.shutdown(reason)
        finally:
            link.hang_up()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(address={self.address!r})"
