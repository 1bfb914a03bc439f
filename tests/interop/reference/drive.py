"""Drives a server with a published client: an order on stdin, the outcomes on stdout.

Order: ``{"backend": "numpy" or "", "class": "RemoteEnv" or "RemoteVectorEnv", "script": [...]}``;
see ``interop_player`` for scripts.
"""

from __future__ import annotations

import importlib
import json
import sys

import brief  # noqa: F401
from interop_player import Player
from interop_values import unpack


def main():
    order = json.load(sys.stdin)
    module = importlib.import_module(".".join(filter(None, ["rlmesh", order["backend"]])))
    player = Player(getattr(module, order["class"]))
    json.dump(player.play(unpack(order["script"])), sys.stdout)
    player.close()


if __name__ == "__main__":
    main()
