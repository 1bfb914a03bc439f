"""Serves an env from its main thread: ``python -m support.serve_program MODULE:CALLABLE SETTINGS``.

Prints the address, then ``stopped`` and how ``serve`` ended.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(target: str, settings: str) -> None:
    from rlmesh import EnvServer, ServeOptions

    module, _, name = target.partition(":")
    given = json.loads(settings)
    env = getattr(importlib.import_module(module), name)(**given["kwargs"])
    server = EnvServer(env, given["address"], options=ServeOptions(**given["options"]))
    print(server.address, flush=True)
    try:
        server.serve()
    except BaseException as exc:
        print(f"stopped {type(exc).__name__}", flush=True)
        raise
    print("stopped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
