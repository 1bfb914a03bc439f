"""``python -m rlmesh.serve``: serve a policy or an env from the shell, without a script.

``python -m rlmesh.serve my_pkg:MyPolicy`` serves what it finds there, a model or an env;
``python -m rlmesh.serve --env CartPole-v1`` serves a registered Gymnasium env. :func:`serve_model`
and :func:`serve_env` are the functions behind it.

Exit status: 0 after a stop (SIGTERM, an idle timeout, a client's shutdown), 130 after Ctrl-C, 143
after SIGTERM before it served, 1 on an error, 2 for a wrong command line.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlmesh.serve.arguments import PROG, Command, UsageError, parse_command, refuse_command
from rlmesh.serve.describing import announce_described
from rlmesh.serve.env_sources import EnvSource, env_source, releasing
from rlmesh.serve.lifecycle import (
    Startup,
    Terminated,
    ending_on_sigterm,
    open_ready,
    run_server,
    startup_marks,
)
from rlmesh.serve.settings import check_device, check_fan_out, check_framework, check_mode
from rlmesh.serve.targets import kind_of, load_target
from rlmesh.wire.editions import declared_edition

if TYPE_CHECKING:
    from rlmesh.values import Framework

__all__ = ["main", "serve_env", "serve_model", "startup_marks"]


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Run the command and return its exit status.

    Args:
        argv: the arguments; default those of the process.
        prog: what the command is called in its usage.

    Raises:
        SystemExit: the command line is wrong (2), or asked for help (0).
    """
    startup = Startup()
    command = parse_command(argv, prog)
    if command.verbose:
        logging.basicConfig(level=logging.INFO)
    try:
        with ending_on_sigterm():
            _run(command, startup)
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except UsageError as exc:
        refuse_command(str(exc), prog)
    except Exception as exc:
        if command.verbose:
            traceback.print_exc()
        message = " ".join(str(exc).split()) or type(exc).__name__
        return _fail(message)
    except SystemExit as exc:
        return _fail(f"{command.name} ended the process with sys.exit({exc.code!r})")
    return 0


def _fail(message: str) -> int:
    print(f"rlmesh.serve: error: {message}", file=sys.stderr)
    return 1


def serve_model(
    source: Any,
    address: str,
    *,
    binding: Mapping[str, Any] | None = None,
    workflow_edition: str | None = None,
) -> None:
    """Serve a model until it is stopped, on the calling thread; prints the start line.

    Args:
        source: ``"module:Class"``, a Model or Model subclass, a policy object or class, or a
            predict callable.
        address: where to listen.
        binding: what ``load`` of a Model subclass is given.
        workflow_edition: the edition the model was authored against.

    Raises:
        TypeError: ``source`` is no model, or takes no ``binding``.
        ParamError: ``binding`` does not fit ``load``; nothing was loaded.
        ValueError: ``address`` is none.
        ConnectionError: the address cannot be bound.
        KeyboardInterrupt: after SIGINT.
    """
    declared_edition(keyword=workflow_edition)
    command = Command(
        target=source,
        kind="model",
        address=address,
        binding=dict(binding or {}),
        workflow_edition=workflow_edition,
    )
    _run(command, Startup(), in_command=False)


def serve_env(
    source: Any,
    address: str,
    /,
    *,
    num_envs: int = 1,
    vectorization_mode: str | None = None,
    framework: str | Framework | None = None,
    device: Any = None,
    workflow_edition: str | None = None,
    **make_kwargs: Any,
) -> None:
    """Serve an env until it is stopped, on the calling thread; prints the start line.

    Args:
        source: an :class:`~rlmesh.EnvFactory` or its class; the id of a registered env;
            ``"module:name"``; a callable that returns an env (its class, say); an object with
            ``make``; or an env.
        address: where to listen.
        num_envs: how many to make; several are lanes of one server.
        vectorization_mode: ``"sync"`` or ``"async"``: as gymnasium's vector env instead.
        framework: what its actions are: ``"torch"``, ``"jax"``, ``"numpy"``, or an object with the
            members of ``rlmesh.values.Framework``. Default: what the env was made for, else NumPy.
        device: where they are put, such as ``"cuda:0"``; for torch and jax.
        workflow_edition: the edition the env was authored against.
        **make_kwargs: keyword arguments of the env.

    Raises:
        TypeError: ``source`` makes no env, or does not take ``make_kwargs``.
        ParamError: they do not fit the params that a factory declares; nothing was made.
        ValueError: no address, an unknown framework, or a device that it does not have.
        NotImplementedError: a vectorization mode for several torch or jax envs.
        ConnectionError: the address cannot be bound.
        KeyboardInterrupt: after SIGINT.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"num_envs must be an int of 1 or more, got {num_envs!r}")
    check_mode(vectorization_mode)
    if isinstance(framework, str):
        check_framework(framework)
    declared_edition(keyword=workflow_edition)
    command = Command(
        target=source,
        kind="env",
        address=address,
        binding=make_kwargs,
        num_envs=num_envs,
        vectorization_mode=vectorization_mode,
        framework=framework,
        device=device,
        workflow_edition=workflow_edition,
        flags=frozenset() if device is None else frozenset({"device"}),
    )
    _run(command, Startup(), in_command=False)


def _run(command: Command, startup: Startup, *, in_command: bool = True) -> None:
    """Load the target, make what it names and serve it."""
    ready = None if command.ready_fd is None else open_ready(command.ready_fd)
    kind = command.kind
    with startup.phase("imports"):
        for package in command.packages:
            importlib.import_module(package)
        if kind == "env":
            target = command.target
        else:
            target = load_target(command.target)
            kind = kind or kind_of(target, command.binding, command.name)
    command.check_flags(kind)
    if kind == "model":
        server: Any = _model_server(command, target, startup)
        if command.workflow_edition is not None:
            server.declare_edition(command.workflow_edition)
        with startup.phase("imports"):
            announce_described(server, target, command)
        run_server(server, kind, startup, ready, sigterm=in_command)
        return
    with startup.phase("imports"):
        source = env_source(target, command.binding)
        framework, device = _spoken(command, source)
        option, authored = command.options.workflow_edition, source.edition
        declared_edition(keyword=command.workflow_edition, option=option, attribute=authored)
    with releasing(source):
        server = _env_server(command, source, framework, device, startup)
        source.hand_over()
        server.declare_edition(command.workflow_edition, authored=authored)
        with startup.phase("imports"):
            announce_described(server, source.thing, command)
        run_server(server, kind, startup, ready, sigterm=in_command)


def _model_server(command: Command, target: Any, startup: Startup) -> Any:
    with startup.phase("imports"):
        from rlmesh.models.server import ModelServer
        from rlmesh.serve.model_sources import close_quietly, hint_without_spec, make_model

    with startup.phase("model"):
        model = make_model(target, command.binding, command.name)
    hint_without_spec(model)
    try:
        with startup.phase("listen"):
            return ModelServer(
                model,
                command.address,
                options=command.options,
                max_batch=command.max_batch,
                batch_wait_ms=command.batch_wait_ms,
            )
    except BaseException:
        close_quietly(model)
        raise


def _env_server(
    command: Command, source: EnvSource, framework: Framework | None, device: Any, startup: Startup
) -> Any:
    with startup.phase("imports"):
        from rlmesh.envs.server import EnvServer
    lanes, mode = command.num_envs, command.vectorization_mode
    check_fan_out(mode, lanes or 1, framework)
    with startup.phase("env"):
        if mode is not None:
            env, tags = source.vector(lanes or 1, mode), None
        else:
            env = source.one() if lanes is None else [source.one() for _ in range(lanes)]
            tags = source.tags
    with startup.phase("listen"):
        return EnvServer(
            env,
            command.address,
            options=command.options,
            tags=tags,
            framework=framework,
            device=device,
        )


def _spoken(command: Command, source: EnvSource) -> tuple[Framework | None, Any]:
    """Return what the env's actions are, and where; UsageError for a device of what has none."""
    from rlmesh.values.frameworks import check_place, framework_named

    framework = framework_named(command.framework) or source.framework
    try:
        check_device(command.device, framework)
    except ValueError as exc:
        if "device" in command.flags:
            raise UsageError(str(exc)) from None
        return framework, None  # the environment's device is for envs that have one
    if framework is not None and command.device is not None:
        check_place(framework, command.device, "actions")  # before anything is made
    return framework, command.device
