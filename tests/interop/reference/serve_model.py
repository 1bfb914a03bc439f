"""Serves a model with the published server: ``serve_model.py NAME ADDRESS``. Says when it starts.

The published server does not tell its address, so that must be a whole one.
"""

from __future__ import annotations

import sys

import brief  # noqa: F401
from interop_models import models

from rlmesh.numpy import Model


def main():
    name, address = sys.argv[1:]
    model = models(Model)[name]()
    print(address, flush=True)
    model.serve(address)


if __name__ == "__main__":
    main()
