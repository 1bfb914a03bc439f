"""``python -m rlmesh.serve`` with --framework and --device, as real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from frameworks.framework_targets import Bound, Telling
from support.processes import Child

import rlmesh
from rlmesh.numpy import RemoteEnv, RemoteVectorEnv
from rlmesh.serve import main, serve_env

TARGETS = "frameworks.framework_targets:"


@contextmanager
def served(*arguments: str, **environ: str) -> Iterator[str]:
    """Give the address that a running command says it serves."""
    argv = [sys.executable, "-m", "rlmesh.serve", *arguments, "--address", "127.0.0.1:0"]
    with Child(argv, environ=environ) as child:
        line = child.line(seconds=60)
        assert line.startswith("RLMesh serving "), line + child.errors()
        yield line.split()[4]


def told(address: str) -> tuple[str, str]:
    """Return what the action of a served Telling was, and where."""
    with RemoteEnv(address) as remote:
        remote.reset()
        info = remote.step([0.5, 1])[4]
        return info["kind"], info["where"]


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (("--framework", "Torch", "--device", "cpu"), {}, ("torch", "cpu")),
        ((), {"RLMESH_FRAMEWORK": " jax ", "RLMESH_DEVICE": "cpu:0"}, ("jaxlib", "cpu:0")),
        (("--framework", "numpy"), {"RLMESH_DEVICE": "cuda:0"}, ("numpy", "host")),
        ((), {"RLMESH_DEVICE": "cuda:0"}, ("numpy", "host")),
    ],
    ids=["flags", "environment", "numpy and an ambient device", "an ambient device"],
)
def test_what_an_env_is_served_as(
    arguments: tuple[str, ...], environ: dict[str, str], expected: tuple[str, str]
) -> None:
    """CMD-1, CMD-6: flags, else the environment; its device is for envs that have one."""
    with served(TARGETS + "Telling", *arguments, **environ) as address:
        assert told(address) == expected


def test_a_bound_factory_needs_no_flag_and_takes_a_device() -> None:
    """FAC-3, CMD-9."""
    with served(TARGETS + "Bound", "--device", "cpu") as address:
        assert told(address) == ("torch", "cpu")


def test_several_envs_are_lanes_and_never_gymnasiums(capsys: pytest.CaptureFixture[str]) -> None:
    """CMD-5."""
    with (
        served(TARGETS + "Telling", "--framework", "torch", "--num-envs", "2") as address,
        RemoteVectorEnv(address) as remote,
    ):
        remote.reset()
        assert remote.step([[0, 1], [1, 0]])[4]["kind"] == ["torch", "torch"]
    lanes = ["--num-envs", "2", "--vectorization-mode", "sync", "--address", "0"]
    assert main(["--env", TARGETS + "Telling", "--framework", "torch", *lanes]) == 1
    assert "joins lanes with NumPy" in capsys.readouterr().err
    for source, framework in ((Telling, "jax"), (Bound, None)):
        with pytest.raises(NotImplementedError, match="joins lanes with NumPy"):
            serve_env(source, "0", num_envs=2, vectorization_mode="async", framework=framework)


def test_a_model_takes_neither(capsys: pytest.CaptureFixture[str]) -> None:
    """CMD-2: as a flag; what the environment holds may be meant for envs."""
    for flag in (("--framework", "torch"), ("--device", "cpu")):
        with pytest.raises(SystemExit) as caught:
            main([TARGETS + "Still", *flag])
        assert caught.value.code == 2
        assert f"{flag[0]}: only for an env" in capsys.readouterr().err
    with served(TARGETS + "Still", RLMESH_FRAMEWORK="torch", RLMESH_DEVICE="cuda:0") as address:
        model = rlmesh.RemoteModel(address)
        assert rlmesh.run(model, Telling(), seeds=[0], max_episode_steps=2).total_steps == 2


def test_a_device_of_an_env_that_has_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """CMD-1, CMD-9: status 2 for a flag, ValueError for an argument; nothing is made."""
    with pytest.raises(SystemExit) as caught:
        main([TARGETS + "Telling", "--device", "cuda:0"])
    assert caught.value.code == 2 and "for torch/jax envs" in capsys.readouterr().err
    for framework in (None, "numpy"):
        with pytest.raises(ValueError, match="for torch/jax envs"):
            serve_env(Telling, "0", framework=framework, device="cuda:0")
    assert main([TARGETS + "Telling", "--framework", "torch", "--device", "moon"]) == 1
    assert "torch cannot put actions there" in capsys.readouterr().err
