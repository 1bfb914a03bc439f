"""Serves an env with the published server: ``serve.py NAME ADDRESS [OPTIONS as JSON]``.

Prints the bound address, or why there is none.
"""

from __future__ import annotations

import json
import sys

import brief  # noqa: F401
from interop_envs import ENVS

import rlmesh


def main():
    name, address, *options = sys.argv[1:]
    keywords = json.loads(options[0]) if options else {}
    server = rlmesh.EnvServer(ENVS[name](), address, options=rlmesh.ServeOptions(**keywords))
    print(server.address, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
