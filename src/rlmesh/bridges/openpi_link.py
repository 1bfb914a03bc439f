"""openpi's policy servers: msgpack over a websocket.

The server sends its metadata when a client connects; every message after that is one observation,
and is answered with one action dict, or with the traceback as text. It keeps no episodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from rlmesh.bridges.model import BridgedModel
from rlmesh.bridges.msgpack_numpy import pack, unpack
from rlmesh.envs.remote import CONNECT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS
from rlmesh.errors import ModelException, ProtocolException, add_note
from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT
from rlmesh.transport.options import check_seconds
from rlmesh.values.tree import describe_tree

__all__ = ["OpenpiLink", "openpi"]

_INSTALL = "pip install 'rlmesh[openpi]'"
_ACTIONS = "actions"


def openpi(
    address: str,
    *,
    spec: Any,
    native_chunk: int | None = None,
    connect_timeout_seconds: float | None = CONNECT_TIMEOUT_SECONDS,
    request_timeout_seconds: float | None = REQUEST_TIMEOUT_SECONDS,
    api_key: str | None = None,
    max_message_bytes: int = DEFAULT_MESSAGE_LIMIT,
) -> BridgedModel:
    """Return the model that a running openpi policy server is, dialled.

    Every prediction sends one observation and receives a chunk, the ``actions`` of the answer,
    ``[H, A]``; ``execution_horizon`` says how much of it is executed.

    Args:
        address: ``"ws://host:port"`` or ``"wss://..."``.
        spec: what the policy eats and emits, under the server's keys; see
            ``rlmesh.adapters.presets.openpi_libero``. ``rlmesh.NO_ADAPTER`` for an env whose
            observation is the server's already.
        native_chunk: H, so that a larger horizon is refused before the run. Default: learned from
            the first chunk.
        connect_timeout_seconds: bound on dialling and reading the metadata. Default 10 s; None
            waits for ever.
        request_timeout_seconds: bound on every prediction. Default 300 s; None waits for ever.
        api_key: what the server's gateway asks for, if it does.
        max_message_bytes: largest answer. Default 256 MiB.

    Raises:
        ImportError: websockets or msgpack is missing.
        ValueError: the address is none.
        ConnectionError, TimeoutError: nobody answers; with the address.
        ProtocolException: somebody does, but no openpi server.
    """
    link = OpenpiLink(
        address,
        connect_timeout=connect_timeout_seconds,
        request_timeout=request_timeout_seconds,
        api_key=api_key,
        limit=max_message_bytes,
    )
    return BridgedModel(link, spec=spec, native_chunk=native_chunk)


class OpenpiLink:
    """A :class:`~rlmesh.bridges.PolicyLink` to an openpi server."""

    def __init__(
        self,
        address: str,
        *,
        connect_timeout: float | None,
        request_timeout: float | None,
        api_key: str | None,
        limit: int,
    ) -> None:
        self.address = _checked(address)
        check_seconds("connect_timeout_seconds", connect_timeout)
        check_seconds("request_timeout_seconds", request_timeout)
        _require("websockets", "msgpack")
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._headers = {"Authorization": f"Api-Key {api_key}"} if api_key else None
        self._limit = limit
        self._socket: Any = None
        self._open = ExitStack()

    def connect(self) -> Mapping[str, Any]:
        """Dial, and return the server's metadata."""
        from websockets.exceptions import WebSocketException

        self.hang_up()
        within = self._connect_timeout
        try:
            self._socket = self._open.enter_context(self._dial())
            metadata = self._socket.recv(timeout=within)
        except TimeoutError:
            self.hang_up()
            raise TimeoutError(
                f"no openpi server answered at {self.address} within {within:g} s; is it up? It "
                "answers once its weights are loaded; connect_timeout_seconds bounds the wait"
            ) from None
        except OSError as exc:
            self.hang_up()
            raise ConnectionError(
                f"could not connect to an openpi server at {self.address}: {exc}; is it running, "
                "and reachable from this host?"
            ) from exc
        except (WebSocketException, EOFError) as exc:
            self.hang_up()
            raise ProtocolException(
                f"{self.address} answers, but not as an openpi server does: {exc}"
            ) from exc
        return self._read(metadata, "metadata")

    def _dial(self) -> Any:
        connect: Any = import_module("websockets.sync.client").connect
        options: dict[str, Any] = {}
        if "ping_interval" in inspect.signature(connect).parameters:
            # An openpi server answers no ping while its policy is at work.
            options["ping_interval"] = None
        return connect(
            self.address,
            compression=None,
            open_timeout=self._connect_timeout,
            close_timeout=1,  # nothing is lost by leaving at once
            max_size=self._limit,
            additional_headers=self._headers,
            **options,
        )

    def infer(self, observation: Any) -> Any:
        """Return the server's actions for one observation, ``[H, A]``."""
        if not isinstance(observation, Mapping):
            raise TypeError(
                f"an openpi server takes a dict of arrays and text, got "
                f"{type(observation).__name__}; give the bridge a spec that makes one"
            )
        answer = self._read(self._ask(pack(dict(cast("Mapping[str, Any]", observation)))), "answer")
        actions = answer.get(_ACTIONS)
        if not isinstance(actions, np.ndarray) or len(cast("Any", actions).shape) < 2:
            got = describe_tree(answer)
            raise ProtocolException(
                f"{self.address}: expected an array 'actions' of shape [H, A] in the answer, got "
                f"{got}"
            )
        return cast("Any", actions)

    def _ask(self, request: bytes) -> Any:
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            self.connect()
        socket: Any = self._socket
        try:
            socket.send(request)
            answer = socket.recv(timeout=self._request_timeout)
        except TimeoutError:
            self.hang_up()  # the answer may still come, and would be taken for the next one's
            raise TimeoutError(
                f"{self.address} did not answer within {self._request_timeout:g} s; raise "
                "request_timeout_seconds, or see what its policy is doing"
            ) from None
        except (ConnectionClosed, OSError) as exc:
            self.hang_up()
            raise ConnectionError(f"{self.address} closed the connection: {exc}") from exc
        except BaseException:  # Ctrl-C, say: the same
            self.hang_up()
            raise
        if isinstance(answer, str):
            self.hang_up()  # as the server does
            raise self._raised(answer)
        return answer

    def _raised(self, report: str) -> ModelException:
        """Return what the policy raised, as the server reports it."""
        lines = report.strip().splitlines() or ["it does not say what"]
        exc = ModelException(f"the policy of {self.address} raised {lines[-1]}")
        add_note(exc, f"at {self.address}:\n{report}")
        return exc

    def _read(self, data: Any, what: str) -> dict[str, Any]:
        try:
            if isinstance(data, str):
                raise ValueError(f"text: {data[:200]!r}")
            tree = unpack(data)
            if not isinstance(tree, dict):
                raise ValueError(f"a {type(tree).__name__}")
        except ValueError as exc:
            self.hang_up()
            raise ProtocolException(
                f"{self.address}: expected the {what} of an openpi server, a msgpack map; got {exc}"
            ) from exc
        return cast("dict[str, Any]", tree)

    def reset(self, episode_id: str) -> None:
        """Nothing: the server keeps no episodes."""

    def hang_up(self) -> None:
        """Close the connection, if there is one."""
        self._socket = None
        with suppress(Exception):
            self._open.close()


def _checked(address: Any) -> str:
    if not isinstance(address, str):
        raise TypeError(f"address must be a str, got {type(address).__name__}")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"expected the address of an openpi server, as ws://host:8000, got {address!r}"
        )
    return address


def _require(*modules: str) -> None:
    for module in modules:
        try:
            import_module(module)
        except ImportError as exc:
            raise ImportError(f"rlmesh.bridges.openpi requires {module}: {_INSTALL}") from exc
