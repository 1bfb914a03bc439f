"""``python -m rlmesh.serve --env CartPole-v1``: serve a registered Gymnasium env from the shell.

Exit status: 0 after a stop (SIGTERM, an idle timeout, a client's shutdown), 130 after Ctrl-C, 1 on
an error, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO, Any, cast

from rlmesh.envs.server import EnvServer

__all__ = ["main"]

DEFAULT_ADDRESS = "127.0.0.1:50051"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        argv: the arguments; default those of the process.

    Raises:
        SystemExit: the command line is wrong (2), or asked for help (0).
    """
    arguments = _parser().parse_args(argv)
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO)
    try:
        _serve(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:
        if arguments.verbose:
            traceback.print_exc()
        message = " ".join(str(exc).split()) or type(exc).__name__
        print(f"rlmesh.serve: error: {message}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlmesh.serve",
        description="Serve an env until SIGTERM or Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("--env", required=True, metavar="ID", help="registered id, as CartPole-v1")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="P",
        help="import P first, which registers the env; may be repeated",
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("RLMESH_ADDRESS") or DEFAULT_ADDRESS,
        metavar="A",
        help="host:port, port, tcp://... or unix:///path (default: $RLMESH_ADDRESS or "
        f"{DEFAULT_ADDRESS}; %(default)s here)",
    )
    parser.add_argument(
        "--kwargs-json",
        type=_json_object,
        default={},
        metavar="J",
        help="JSON object with keyword arguments of the env",
    )
    parser.add_argument(
        "--num-envs",
        type=_positive,
        metavar="N",
        help="serve N envs, as lanes that are reset and stepped alone",
    )
    parser.add_argument(
        "--vectorization-mode",
        choices=("sync", "async"),
        help="with --num-envs: as gymnasium's vector env, stepped in lockstep",
    )
    parser.add_argument(
        "--ready-fd",
        type=_descriptor,
        metavar="FD",
        help="once bound, write the resolved address and a newline to FD and close it",
    )
    parser.add_argument("--verbose", action="store_true", help="log, and show tracebacks")
    return parser


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text}")
    return cast("dict[str, Any]", value)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text!r}")
    return int(text)


def _descriptor(text: str) -> int:
    if not text.isdecimal() or int(text) < 3:
        raise argparse.ArgumentTypeError(f"expected a descriptor >= 3, got {text!r}")
    return int(text)


def _serve(arguments: argparse.Namespace) -> None:
    ready = None if arguments.ready_fd is None else _open_ready(arguments.ready_fd)
    env = _make(arguments)
    try:
        server = EnvServer(env, arguments.address)
    except BaseException:
        for part in cast("list[Any]", env) if isinstance(env, list) else [env]:
            with contextlib.suppress(Exception):
                part.close()
        raise
    with server:
        _stop_on_sigterm(server)
        print(f"RLMesh serving env on {server.address}", flush=True)
        if ready is not None:
            with ready:
                ready.write(f"{server.address}\n")
        server.serve()


def _open_ready(descriptor: int) -> IO[str]:
    """Return the descriptor as a file; raises before the env is built, which may take long."""
    try:
        os.write(descriptor, b"")
        os.set_inheritable(descriptor, False)
        ready = open(descriptor, "w")  # noqa: SIM115 - closed once the address is written
    except OSError as exc:
        raise OSError(f"--ready-fd {descriptor} cannot be written to: {exc.strerror}") from None
    # Whoever waits for the end of file must not wait for the workers of an AsyncVectorEnv.
    os.register_at_fork(after_in_child=ready.close)
    return ready


def _stop_on_sigterm(server: EnvServer) -> None:
    """Turn the first SIGTERM into an orderly stop; a second one kills."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        server.request_stop()

    signal.signal(signal.SIGTERM, stop)


def _make(arguments: argparse.Namespace) -> Any:
    """Return the env, or the list of envs, that the command line asks for."""
    for package in arguments.package:
        importlib.import_module(package)
    try:
        import gymnasium
    except ImportError as exc:
        raise ImportError(
            "rlmesh.serve --env requires gymnasium: pip install 'rlmesh[gymnasium]'"
        ) from exc

    def make() -> Any:
        return gymnasium.make(arguments.env, **arguments.kwargs_json)

    lanes: int | None = arguments.num_envs
    mode: str | None = arguments.vectorization_mode
    try:
        if mode is not None:
            return _make_vector(gymnasium, arguments, make)
        return make() if lanes is None else [make() for _ in range(lanes)]
    except gymnasium.error.UnregisteredEnv as exc:
        raise ImportError(
            f"{exc} Is a package that registers it missing? Name it with --package"
        ) from exc


def _make_vector(gymnasium: Any, arguments: argparse.Namespace, make: Callable[[], Any]) -> Any:
    lanes: int = arguments.num_envs or 1
    if hasattr(gymnasium, "VectorizeMode"):
        return gymnasium.make_vec(
            arguments.env,
            num_envs=lanes,
            vectorization_mode=arguments.vectorization_mode,
            **arguments.kwargs_json,
        )
    vector = gymnasium.vector  # before 1.0, make_vec made envs of an experimental kind
    kinds = {"sync": vector.SyncVectorEnv, "async": vector.AsyncVectorEnv}
    return kinds[arguments.vectorization_mode]([make] * lanes)


if __name__ == "__main__":
    sys.exit(main())
