"""Serves a model from its main thread: ``python served_program.py KIND SETTINGS``; see below."""

from __future__ import annotations

import json
import sys


def main(kind: str, settings: str) -> None:
    from models_served.served_kinds import KINDS

    import rlmesh

    given = json.loads(settings)
    model = KINDS[kind].from_config(**given["config"])
    options = rlmesh.ServeOptions(**given["options"])
    server = rlmesh.ModelServer(model, given["address"], options=options, **given["server"])
    print(server.address, flush=True)
    server.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
