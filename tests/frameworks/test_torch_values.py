"""torch tensors as values of the NumPy and the framework-free classes; not on the oldest stack."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from support import FunctionEnv, serving
from support.driving import driving, driving_lanes
from support.trees import sent

import rlmesh
from rlmesh import Tensor
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary
from rlmesh.values import compile_codec

DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "uint16", "uint32", "uint64"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_adopts_a_tensor_without_a_copy(dtype: str) -> None:
    """VAL-7, VAL-9: through DLPack, silently, and the memory is the Tensor's own."""
    t = Tensor(np.arange(6).astype(dtype), [2, 3], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adopted = torch.from_dlpack(t)
    assert adopted.dtype == getattr(torch, dtype) and tuple(adopted.shape) == (2, 3)
    assert adopted.data_ptr() == np.asarray(t).ctypes.data
    np.testing.assert_array_equal(adopted.numpy(), np.asarray(t))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_takes_a_torch_tensor(dtype: str) -> None:
    """VAL-8: from_dlpack copies, strided input is made contiguous."""
    source = torch.arange(6).to(getattr(torch, dtype)).reshape(2, 3).T
    t = Tensor.from_dlpack(source)
    assert (t.shape, t.dtype) == ([3, 2], dtype)
    np.testing.assert_array_equal(np.asarray(t), source.numpy())
    source[:] = 0
    assert np.asarray(t).any()


def test_what_torch_has_and_the_wire_has_not() -> None:
    """VAL-10: bfloat16 and complex are refused with the remedy."""
    for dtype in (torch.bfloat16, torch.complex64):
        with pytest.raises(ValueError, match="bfloat16 is not supported on the wire"):
            Tensor.from_dlpack(torch.zeros(2, dtype=dtype))
    codec = compile_codec(Box(-1, 1, (2,)), "action")
    with pytest.raises(ValueError, match=r"action: .*bfloat16 is not supported.*cast to float32"):
        codec.encode(torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"action of lane 1: .*bfloat16"):
        codec.encode_batch([torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16)], 2)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([0.5, -1.0]),
        torch.tensor([0.5, -1.0], dtype=torch.float64),
        torch.tensor([0.5, -1.0], dtype=torch.float16),
        torch.tensor([0.5, -1.0], requires_grad=True),
        torch.tensor([[0.5, 9.0], [-1.0, 9.0]])[:, 0],
        torch.tensor([0.5, -1.0]).neg().neg(),
    ],
    ids=["float32", "float64", "float16", "grad", "strided", "computed"],
)
def test_torch_actions(value: Any) -> None:
    """CNF-5, issue 2: whatever dtype, layout and graph; one, batched, or a list of them."""
    codec = compile_codec(Box(-1, 1, (2,)), "action")
    expected = np.array([0.5, -1.0], np.float32).tobytes()
    assert sent(codec.encode(value)) == [expected]
    assert sent(codec.encode_batch([value, value], 2)) == [expected * 2]
    assert sent(codec.encode_batch(torch.stack([value, value]), 2)) == [expected * 2]
    assert sent(codec.encode_rows([value, value])) == [expected * 2]


def test_a_fitting_torch_tensor_is_not_copied() -> None:
    """Issue 2: a contiguous tensor of the declared dtype travels from where it lies."""
    value = torch.zeros(4, 3)
    (leaf,) = compile_codec(Box(-1, 1, (4, 3)), "action").encode(value)
    assert leaf.ctypes.data == value.data_ptr()


def test_integers_and_scalars() -> None:
    """VAL-11: 0-d tensors are numbers, integer tensors choices."""
    assert sent(compile_codec(Discrete(5), "action").encode(torch.tensor(3))) == [b"\3" + bytes(7)]
    codec = compile_codec(MultiBinary(2), "action")
    assert sent(codec.encode(torch.tensor([True, False]))) == [b"\1\0"]


def test_an_env_and_a_client_that_speak_torch() -> None:
    """SRV-19, VAL-9: observations, rewards, flags and infos of torch; tensors as actions."""
    space = Dict({"image": Box(0, 255, (2, 2), "uint8"), "state": Box(-9, 9, (3,))})

    def observation() -> Any:
        return {
            "image": torch.full((2, 2), 7, dtype=torch.uint8),
            "state": torch.arange(3, dtype=torch.float64),
        }

    def step(action: Any) -> Any:
        flags = (torch.tensor(False), torch.tensor([True]))
        return observation(), torch.tensor(1.5), *flags, {"loss": torch.tensor([0.5, 1.0])}

    env = FunctionEnv(observation_space=space, reset=lambda seed: (observation(), {}), step=step)
    with driving(env) as remote:
        assert remote.reset()[0]["image"].tolist() == [[7, 7], [7, 7]]
        got, reward, terminated, truncated, info = remote.step(torch.tensor([0.5, 1.0]))
        assert got["state"].dtype == np.float32 and got["state"].tolist() == [0, 1, 2]
        assert (reward, terminated, truncated) == (1.5, False, True)
        assert list(info["loss"]) == [0.5, 1.0]
        adopted = torch.from_numpy(got["image"])  # writable, so torch does not complain
        adopted[:] = 0
        assert got["image"].sum() == 0
    assert env.actions[0].tolist() == [0.5, 1.0]
    with driving_lanes([FunctionEnv(), FunctionEnv()]) as remote:
        remote.reset()
        remote.step(torch.zeros(2, 2))
        remote.step([torch.zeros(2), torch.zeros(2, requires_grad=True)])


def test_native_observations_go_into_torch() -> None:
    """VAL-1, VAL-7: from the framework-free client straight into torch."""
    with serving(FunctionEnv()) as server, rlmesh.RemoteEnv(server.address) as remote:
        observation = torch.from_dlpack(remote.reset()[0])
        assert observation.tolist() == [0, 0, 0, 0]
        remote.step(torch.ones(2))
