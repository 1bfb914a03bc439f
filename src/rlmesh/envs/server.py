"""`EnvServer`: serve a simulator to another process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, cast

from rlmesh.envs.core import EnvCore
from rlmesh.envs.hosts import Host, LanesHost, ScalarHost, checked_env, is_vector_env, peek
from rlmesh.envs.options import ServeOptions
from rlmesh.envs.vector_host import SqueezedVectorEnv, VectorHost
from rlmesh.transport.address import make_address
from rlmesh.values import Report
from rlmesh.wire.contract import EnvContract

if TYPE_CHECKING:
    from rlmesh.adapters.tags import EnvTags

__all__ = ["EnvServer"]

ENV_TAGS_KEY = "rlmesh.adapters.v1.env_tags"

_FINALIZER_SECONDS = 15.0


class EnvServer:
    """Serves an env at one address, to one driving client at a time.

    The address is bound at construction; requests are answered by :meth:`serve` or :meth:`start`.
    Every env method (reset, step, render, close) runs on one thread: the one that calls
    :meth:`serve`, or the server's own after :meth:`start`.

    Args:
        env: an env with the gymnasium surface; a vector env (``num_envs``, ``single_*_space``); or
            a list of single envs, served as lanes that may be reset and stepped alone.
        address: ``"host:port"``, ``"port"``, ``"tcp://..."``, ``"http://..."`` or
            ``"unix:///path"``. Default: ``tcp://127.0.0.1:0``, a free port.
        host, port, path, transport: the same, in parts.
        options: lifetime and access; see :class:`ServeOptions`.
        tags: what the env's leaves mean (``rlmesh.adapters.EnvTags``), published to models; those
            in ``env.metadata`` are published as well. Checked against the spaces.
        close_env_on_shutdown: close the env when the server stops. Default True.

    Raises:
        ConnectionError: the address cannot be bound.
        AdapterResolutionError: tags that do not fit the spaces.
        TypeError, ValueError: the env lacks a method or has a space that cannot travel.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> with rlmesh.EnvServer(gym.make("CartPole-v1")) as server:
        ...     server.start()
        ...     server.env_contract
        EnvContract(id="CartPole-v1", num_envs=1)
    """

    def __init__(
        self,
        env: Any,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        options: ServeOptions | None = None,
        tags: EnvTags | None = None,
        close_env_on_shutdown: bool = True,
    ) -> None:
        where = make_address(
            address, host=host, port=port, path=path, transport=transport, bind=True
        )
        if options is not None and not isinstance(options, ServeOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"options must be ServeOptions, got {type(options).__name__}")
        self._options = options or ServeOptions()
        self._core = EnvCore(
            lambda report: _tagged(_make_host(env, report), tags),
            where,
            self._options,
            close_env=close_env_on_shutdown,
        )
        self._thread: threading.Thread | None = None
        self._used = False
        self._finalizer = weakref.finalize(self, _finalize, self._core)
        _cores.add(self._core)

    @property
    def address(self) -> str:
        """The bound address with its scheme and port, e.g. ``tcp://127.0.0.1:37871``."""
        return str(self._core.listener.address)

    @property
    def env_contract(self) -> EnvContract:
        """What clients are told about the env."""
        return self._core.host.contract

    @property
    def spec(self) -> EnvContract:
        """The same as :attr:`env_contract`."""
        return self._core.host.contract

    def serve(self) -> None:
        """Serve until stopped, running the env on the calling thread.

        On the main thread the first SIGINT stops the server after the running request, closes the
        env and then raises KeyboardInterrupt; a second one interrupts the env's own code.

        Raises:
            RuntimeError: the server was started or shut down before.
            KeyboardInterrupt: after SIGINT.
        """
        self._claim("serve")
        with _stop_on_sigint(self._core) as interrupted:
            self._core.run()
        self._finalizer.detach()
        if interrupted():
            raise KeyboardInterrupt

    def start(self) -> None:
        """Serve on a thread of the server's own, which the env then belongs to.

        Raises:
            RuntimeError: the server was started or shut down before.
        """
        self._claim("start")
        self._thread = threading.Thread(target=self._core.run, name="rlmesh-env", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; False when ``timeout`` seconds passed first.

        Raises:
            RuntimeError: the server was not started.
        """
        if not self._used:
            raise RuntimeError("wait() before start(): the server is not running")
        return self._core.finished.wait(timeout)

    def request_stop(self) -> None:
        """Ask for the stop that :meth:`shutdown` waits for; safe in a signal handler."""
        self._core.request_stop()

    def shutdown(self) -> None:
        """Stop: finish the running request, close the env, free the address. Idempotent.

        ``drain_timeout_seconds`` bounds the wait for the request, ``close_timeout_seconds`` that
        for the env's ``close``.

        Raises:
            TimeoutError: one of them passed. The address is free; the env's thread goes on until
                its call returns.
        """
        self._finalizer.detach()
        if not self._used:
            self._used = True
            self._core.listener.stop()
            self._core.close_host()
            self._core.finished.set()
            return
        self._core.request_stop()
        if self._on_env_thread():
            return  # called from within the env: run() stops after this request
        if not self._core.drained.wait(self._options.drain_timeout_seconds):
            self._core.abandon()
            raise TimeoutError(
                f"a request was still running {self._options.drain_timeout_seconds} s after "
                f"shutdown of {self.address}; its env call was left to itself"
            )
        if not self._core.finished.wait(self._options.close_timeout_seconds):
            raise TimeoutError(
                f"env.close() of {self.address} took more than "
                f"{self._options.close_timeout_seconds} s; it was left to itself"
            )
        if self._thread is not None:
            self._thread.join()

    def _on_env_thread(self) -> bool:
        return self._core.thread is threading.current_thread()

    def _claim(self, what: str) -> None:
        if self._used:
            raise RuntimeError(
                f"{what}() on a server that was already started or shut down; construct a new one"
            )
        self._used = True
        self._core.claimed = True

    def __enter__(self) -> EnvServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"EnvServer(address={self.address!r})"


def _make_host(env: Any, report: Report) -> Host:
    if isinstance(env, (list, tuple)):
        envs = cast("Sequence[Any]", env)
        if len(envs) == 1 and not is_vector_env(envs[0]):
            return ScalarHost(envs[0], report)  # the wire knows no vector of one
        return LanesHost(envs, report)
    if isinstance(env, type):
        raise TypeError(
            f"env must be an instance, got the class {env.__name__}; construct it first"
        )
    if not callable(getattr(env, "step", None)):
        raise TypeError(f"env must have a 'step' method, got {type(env).__name__}")
    if not is_vector_env(env):
        return ScalarHost(env, report)
    if int(peek(env, "num_envs") or 0) == 1:
        return ScalarHost(SqueezedVectorEnv(checked_env(env)), report)
    return VectorHost(env, report)


def _tagged(host: Host, tags: EnvTags | None) -> Host:
    """Publish ``tags`` in the contract, and check those that it has then."""
    contract = host.contract
    metadata = dict(contract.metadata or {})
    if tags is not None:
        metadata.update(tags.to_metadata())
        host.contract = replace(contract, metadata=metadata)
    if ENV_TAGS_KEY in metadata:
        from rlmesh.adapters.resolution import published_tags
        from rlmesh.adapters.tagging import check_env_tags

        published = published_tags(metadata)
        if published is not None:
            check_env_tags(published, contract.observation_space, contract.action_space)
    return host


class _stop_on_sigint:
    """Context manager: on the main thread, turn the first SIGINT into an orderly stop."""

    def __init__(self, core: EnvCore) -> None:
        self._core = core
        self._count = 0
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Callable[[], bool]:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
            self._installed = True
        return lambda: self._count > 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt
        self._core.request_stop()

    def __exit__(self, *exc: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous or signal.SIG_DFL)


def _finalize(core: EnvCore) -> None:
    """Stop a server that was dropped, or that outlived the interpreter."""
    if core.disowned:
        return
    core.request_stop()
    if not core.claimed:
        core.listener.stop()
    elif not threading.current_thread().name.startswith("rlmesh-"):
        # The garbage collector may run on a thread that the server needs in order to stop.
        core.finished.wait(_FINALIZER_SECONDS)


_cores: weakref.WeakSet[EnvCore] = weakref.WeakSet()


def _disown_all() -> None:
    """Let go of every address in a forked child (an AsyncVectorEnv worker, say)."""
    for core in list(_cores):
        with contextlib.suppress(Exception):
            core.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
