"""An author whose code prints, in every way there is."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from typing import Any

from describe_targets import Env

import rlmesh

print("printed at import")
os.write(1, b"written at import\n")
subprocess.run([sys.executable, "-S", "-c", "print('printed by a child')"], check=True)
atexit.register(print, "printed at exit")
atexit.register(os.write, 1, b"written at exit\n")


class Noisy(rlmesh.EnvFactory):
    def prepare(self) -> None:
        print("printed in prepare")

    def make(self) -> Any:
        os.write(1, b"written in make\n")
        return Env()

    def close(self) -> None:
        print("printed in close", flush=True)


class Fails(rlmesh.EnvFactory):
    def make(self) -> Any:
        raise RuntimeError("no display")

    @classmethod
    def enumerate_variants(cls) -> Any:
        yield rlmesh.Variant("a", {}, error="of the author's own")
        raise RuntimeError("no list")


class Ends(rlmesh.EnvFactory):
    def make(self) -> Any:
        sys.exit(9)


def make_env() -> Any:
    return Env()
