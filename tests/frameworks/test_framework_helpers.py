"""BCK-1 to BCK-4: the functions of rlmesh.numpy, rlmesh.torch and rlmesh.jax, and their spaces."""

from __future__ import annotations

import importlib
import typing
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from framework_kinds import ALL, DTYPES, SHAPES, every, same_bits, values

import rlmesh
import rlmesh.jax
import rlmesh.torch
from rlmesh import Tensor
from rlmesh.jax import JAX
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple
from rlmesh.torch import TORCH

as_tensor, from_tensor = rlmesh.torch.as_tensor, rlmesh.torch.from_tensor
asarray, from_array = rlmesh.jax.asarray, rlmesh.jax.from_array

BOUND = ["EnvFactory", "Model", "RemoteEnv", "RemoteModel", "RemoteVectorEnv"]


@pytest.mark.parametrize("name", ALL)
def test_each_module_has_the_same_classes_bound_to_it(name: str) -> None:
    """BCK-1."""
    module = importlib.import_module(f"rlmesh.{name}")
    assert getattr(rlmesh, name) is module
    for bound in BOUND:
        cls = getattr(module, bound)
        assert issubclass(cls, getattr(rlmesh, bound)) and cls._framework is ALL[name]
        assert cls.__module__ == f"rlmesh.{name}"
    assert module.ensure_available() is None
    assert str in typing.get_args(getattr(module, f"{name.title()}Value"))


# torch


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_tensor_shares_a_tensors_memory_or_copies_it(dtype: str, shape: Any) -> None:
    """BCK-3: a view by default, a writable copy with copy=True; zero-size too."""
    array = values(dtype, shape)
    t = Tensor(array, shape, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view, own = as_tensor(t), as_tensor(t, copy=True)
    same_bits(view, array, TORCH)
    same_bits(own, array, TORCH)
    if array.size:
        assert view.data_ptr() == np.asarray(t).ctypes.data != own.data_ptr()
        own.zero_()
        same_bits(as_tensor(t), array, TORCH)


def test_as_tensor_reads_numbers_and_arrays_of_other_libraries() -> None:
    for value, dtype in ((True, torch.bool), (3, torch.int64), (2.5, torch.float32)):
        tensor = as_tensor(value)
        assert (tensor.dtype, tensor.shape, tensor.item()) == (dtype, (), value)
    array = np.arange(3.0)
    assert as_tensor(array).data_ptr() == array.ctypes.data
    array.setflags(write=False)
    assert as_tensor(array).tolist() == as_tensor(jnp.arange(3)).tolist() == [0, 1, 2]
    assert as_tensor(np.arange(3, dtype=">i4")[::-1], copy=True).tolist() == [2, 1, 0]
    assert as_tensor(np.float64(1.5)).dtype == torch.float64
    assert as_tensor([[1, 2]]).shape == (1, 2)
    tensor = torch.ones(2)
    assert as_tensor(tensor) is tensor and as_tensor(tensor, copy=True) is not tensor
    for value in ("text", [object()], np.array([1j])):
        with pytest.raises(TypeError, match="as_tensor expects a Tensor, an array or a number"):
            as_tensor(value)


def test_as_tensor_copies_what_this_torch_reads_from_no_capsule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BCK-3: bool needs torch 2.2 for a view; an older one gets a copy."""

    def from_dlpack(value: Any) -> Any:
        raise RuntimeError("Unsupported kDLBool")

    monkeypatch.setattr(torch, "from_dlpack", from_dlpack)
    t = Tensor(np.array([True, False]), [2], "bool")
    assert as_tensor(t).tolist() == [True, False]
    assert as_tensor(t).data_ptr() != np.asarray(t).ctypes.data


def test_from_tensor_makes_what_rlmesh_carries() -> None:
    """BCK-3: off the graph, contiguous, a copy; 0-d tensors are numbers."""
    source = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    t = from_tensor(source)
    assert (t.shape, t.dtype) == ([3, 2], "float32")
    np.testing.assert_array_equal(np.asarray(t), source.detach().numpy())
    assert np.asarray(t).ctypes.data != source.data_ptr()
    for value in (3, 2.5, True):
        number = from_tensor(torch.tensor(value))
        assert number == value and type(number) is type(value)
    assert from_tensor(torch.zeros(0, 2)).shape == [0, 2]
    with pytest.raises(TypeError, match=r"from_tensor expects a torch\.Tensor, got ndarray"):
        from_tensor(np.ones(2))
    with pytest.raises(ValueError, match="bfloat16 is not supported on the wire"):
        from_tensor(torch.ones(2, dtype=torch.bfloat16))
    for complex_ in (torch.ones(2, dtype=torch.complex64), torch.tensor(1j)):
        with pytest.raises(ValueError, match="unsupported tensor dtype"):
            from_tensor(complex_)


# jax


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_asarray_holds_a_tensors_values(dtype: str, shape: Any) -> None:
    """BCK-4: immutable; zero-size too."""
    array = values(dtype, shape)
    same_bits(asarray(Tensor(array, shape, dtype)), array, JAX)


def test_asarray_reads_numbers_and_arrays_of_other_libraries() -> None:
    for value, dtype in ((True, np.bool_), (3, np.int32), (2.5, np.float32)):
        array = asarray(value)
        assert (array.dtype, array.shape, array.item()) == (dtype, (), value)
    source = np.zeros(100_000, np.float32)
    held = asarray(source)
    source[:] = 5
    assert not np.asarray(held).any()
    assert asarray(torch.arange(3)).tolist() == asarray([0, 1, 2]).tolist() == [0, 1, 2]
    assert asarray(np.arange(3, dtype=">i4")[::-1]).tolist() == [2, 1, 0]
    assert asarray(held) is held
    with pytest.raises(TypeError, match="asarray expects a Tensor, an array or a number"):
        asarray("text")
    with pytest.raises(OverflowError):
        asarray(2**40)
    with pytest.raises(ValueError, match="does not fit int32"):
        asarray(np.int64(2**40))


def test_from_array_makes_what_rlmesh_carries() -> None:
    """BCK-4: waits for the computation, a copy; 0-d arrays are numbers."""
    source = jnp.arange(6.0).reshape(2, 3) * 2
    t = from_array(source)
    assert (t.shape, t.dtype) == ([2, 3], "float32")
    np.testing.assert_array_equal(np.asarray(t), np.asarray(source))
    for value in (3, 2.5, True):
        number = from_array(jnp.asarray(value))
        assert number == value and type(number) is type(value)
    with pytest.raises(TypeError, match=r"from_array expects a jax\.Array, got ndarray"):
        from_array(np.ones(2))
    with pytest.raises(ValueError, match="bfloat16 is not supported on the wire"):
        from_array(jax.numpy.ones(2, jnp.bfloat16))


# Spaces


@every
def test_a_space_samples_and_knows_the_frameworks_arrays(framework: Any) -> None:
    """SPC-16: arrays of the framework, ints for Discrete, str for Text."""
    space = importlib.import_module(f"rlmesh.{framework.name}").space_from_spec(
        Dict(
            {
                "image": Box(0, 255, (2, 2), "uint8"),
                "pair": Tuple([Box(-1, 1, (), "float64"), MultiBinary(3)]),
                "choice": Discrete(3),
                "task": Text(5),
            }
        )
    )
    space.seed(0)
    drawn = space.sample()
    assert type(drawn["choice"]) is int and type(drawn["task"]) is str
    for leaf in (drawn["image"], *drawn["pair"]):
        assert framework.is_array(leaf)
    assert space.contains(drawn)
    assert not space.contains({**drawn, "image": framework.stack([drawn["image"]])})
