"""Plays a script on an env client, a published one or ours, and writes down what came of it.

A script is a list of moves; every move leaves one outcome. Moves: ``["connect", keywords]``,
``["use", name]`` (which client the following moves are for), ``["reset", keywords]``,
``["step", action]``, ``["render", keywords]``, ``["shutdown"]``, ``["close"]``,
``["get", attribute]``.
"""

from __future__ import annotations

from interop_values import pack


def raised(exc):
    """Return an exception as JSON data: the names of its types, its text and its notes."""
    return {
        "raised": [kind.__name__ for kind in type(exc).__mro__],
        "text": str(exc),
        "notes": list(getattr(exc, "__notes__", [])),
    }


EPISODE_FIELDS = ("index", "seed", "steps", "reward", "terminated", "truncated", "success")


def episode_rows(result):
    """Return the episodes of a RunResult, published or ours, in order of index."""
    episodes = sorted(result.episodes, key=lambda episode: episode.index)
    return [{name: getattr(episode, name) for name in EPISODE_FIELDS} for episode in episodes]


class Player:
    """Plays scripts on clients; ``connect(**keywords)`` makes one."""

    def __init__(self, connect):
        self._connect = connect
        self._clients = {}
        self._name = ""

    def play(self, script):
        """Return one outcome a move: ``{"returned": value}``, or that of :func:`raised`."""
        return [self._outcome(*move) for move in script]

    def close(self):
        """Close every client."""
        for client in self._clients.values():
            client.close()

    def _outcome(self, verb, argument=None):
        try:
            return {"returned": pack(self._move(verb, argument))}
        except Exception as exc:
            return raised(exc)

    def _move(self, verb, argument):
        if verb == "use":
            self._name = argument
            return None
        if verb == "connect":
            self._clients[self._name] = self._connect(**argument)
            return None
        client = self._clients[self._name]
        if verb == "get":
            return getattr(client, argument)
        if verb == "step":
            return client.step(argument)
        return getattr(client, verb)(**(argument or {}))
