"""Connecting a lost endpoint anew, without holding up the others."""

from __future__ import annotations

import threading
import time
from typing import Any

from rlmesh.errors import add_note

__all__ = ["Redial"]

_FIRST, _MOST = 0.1, 5.0


class Redial:
    """Dials an endpoint from a thread, ever less often: a peer that hangs stalls nobody else.

    Args:
        endpoint: what to :meth:`~rlmesh.evals.endpoints.Endpoint.reopen`.
        lost: what it was lost with; why it could not be dialled again becomes a note of it.
    """

    def __init__(self, endpoint: Any, lost: BaseException) -> None:
        self._endpoint = endpoint
        self._lost = lost
        self._told: set[str] = set()
        self._pause = _FIRST
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._open = False
        self._given_up = False

    def poll(self) -> bool:
        """Dial if it is time to; True once the endpoint is connected."""
        thread, now = self._thread, time.perf_counter()
        if thread is None:
            if now >= self._next:
                self._thread = threading.Thread(
                    target=self._dial, name="rlmesh-redial", daemon=True
                )
                self._thread.start()
            return False
        if thread.is_alive():
            return False
        self._thread = None
        self._next = now + self._pause
        self._pause = min(2 * self._pause, _MOST)
        return self._open

    def give_up(self) -> None:
        """Stop; a connection that is still being made is left as soon as it stands."""
        with self._lock:
            self._given_up = True
            if self._open:
                self._endpoint.hang_up()

    def _dial(self) -> None:
        with self._endpoint.dialling:  # one that was given up may still be at it
            try:
                self._endpoint.reopen()
            except Exception as exc:
                # Not reachable, no longer the same env, or busy: the next try may find it better.
                why = f"dialling it again failed: {type(exc).__name__}: {exc}"
                if why not in self._told:
                    self._told.add(why)
                    add_note(self._lost, why)
                self._endpoint.hang_up()
                return
            with self._lock:
                if self._given_up:
                    self._endpoint.hang_up()
                else:
                    self._open = True
