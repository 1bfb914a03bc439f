"""The members of a Framework, for torch and jax: values exactly, memory as promised."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from framework_kinds import ALL, DTYPES, SHAPES, both, every, held_as, same_bits, values
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh.jax import JAX
from rlmesh.torch import TORCH
from rlmesh.values import NATIVE, NUMPY
from rlmesh.values.frameworks import framework_named, framework_of, to_host
from rlmesh.values.tree import tree_adopter, tree_stack, tree_to_host, tree_unstack

dtypes, shapes, seeds = st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.integers(0, 2**32 - 1)


@both
@settings(max_examples=150, deadline=None)
@given(dtype=dtypes, shape=shapes, seed=seeds)
def test_values_go_there_and_back_exactly(
    framework: Any, dtype: str, shape: tuple[int, ...], seed: int
) -> None:
    """VAL-9: every dtype, 0-d and zero-size leaves included."""
    array = values(dtype, shape, seed)
    expected = array.copy()
    leaf = framework.from_host(array)
    same_bits(leaf, expected, framework)
    (host,) = framework.to_host_many([leaf])
    assert host.astype(dtype).tobytes() == expected.tobytes()


@both
@pytest.mark.parametrize("dtype", DTYPES)
def test_stacking_and_splitting_are_inverse(framework: Any, dtype: str) -> None:
    rows = [values(dtype, (2, 3), seed) for seed in range(3)]
    leaves = [framework.from_host(row.copy()) for row in rows]
    stacked = framework.stack(leaves)
    same_bits(stacked, np.stack(rows), framework)
    for leaf, row in zip(framework.unstack(stacked), rows, strict=True):
        same_bits(leaf, row, framework)
    same_bits(framework.stack(leaves[:1]), rows[0][None], framework)
    assert [tuple(leaf.shape) for leaf in framework.unstack(leaves[0])] == [(3,)] * 2


@every
@settings(max_examples=40, deadline=None)
@given(dtype=dtypes, seed=seeds, lanes=st.integers(1, 4))
def test_trees_of_host_arrays_are_fused_and_split_alike(
    framework: Any, dtype: str, seed: int, lanes: int
) -> None:
    rows = [{"x": (values(dtype, (2,), seed + lane),), "t": f"{lane}"} for lane in range(lanes)]
    fused = tree_stack(rows, framework)
    assert fused["t"] == [f"{lane}" for lane in range(lanes)]
    same_bits(fused["x"][0], np.stack([row["x"][0] for row in rows]), framework)
    for got, row in zip(tree_unstack(fused, lanes, framework), rows, strict=True):
        same_bits(got["x"][0], row["x"][0], framework)


# torch: owned and writable, over the memory received


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_takes_the_memory_over_and_may_write_to_it(dtype: str) -> None:
    """VAL-9: bool and the wider unsigned dtypes too, on a torch that has them."""
    array = np.ones((2, 3), dtype)
    tensor = TORCH.from_host(array)
    assert tensor.data_ptr() == array.ctypes.data
    tensor.zero_()
    assert not array.any()


def test_a_torch_without_an_unsigned_dtype_says_which_one_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BCK-3: torch below 2.3 has no uint16, uint32 and uint64."""

    def from_numpy(array: Any) -> Any:
        raise TypeError("can't convert np.ndarray of type numpy.uint16")

    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    with pytest.raises(ValueError, match=r"takes no uint16 .* need torch 2\.3"):
        TORCH.from_host(np.ones(2, np.uint16))


# jax: immutable, whatever lies beneath


def aligned(count: int, offset: int = 0) -> np.ndarray[Any, Any]:
    """Return float32 zeros that begin ``offset`` bytes behind a multiple of 64."""
    memory = np.zeros(4 * count + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("offset", [0, 4, 16])
@pytest.mark.parametrize("count", [1, 3, 100_000])
def test_what_others_may_write_to_is_copied_for_jax(count: int, offset: int) -> None:
    """An env that reuses its buffer changes no array a policy was given before."""
    array = aligned(count, offset)
    leaf = tree_adopter(JAX)(array)
    assert type(leaf) is JAX.array_type
    array[:] = 5
    assert not np.asarray(leaf).any()


def test_jax_takes_over_memory_that_is_aligned_and_nobody_elses() -> None:
    array = aligned(100_000)
    leaf = tree_adopter(JAX, owned=True)(array)
    assert leaf.unsafe_buffer_pointer() == array.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(leaf)[:] = 1


def test_an_array_that_jax_copies_is_copied_once() -> None:
    """The copy of memory that others may write to is aligned, so that XLA makes no second one."""
    leaf = tree_adopter(JAX)(np.zeros(100_000, np.float32))
    pointers = {np.asarray(leaf).ctypes.data, leaf.unsafe_buffer_pointer()}
    assert len(pointers) == 1 and pointers.pop() % 64 == 0


# 64 bits without jax_enable_x64


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([1, 2**31]), "2147483648 of int64 does not fit int32"),
        (np.array([-(2**63), 0]), "-9223372036854775808 of int64"),
        (np.array([2**32], np.uint64), "4294967296 of uint64 does not fit uint32"),
    ],
)
def test_jax_refuses_an_integer_it_would_wrap(array: Any, words: str) -> None:
    """A value that would change is refused, with what holds it."""
    with pytest.raises(ValueError, match=rf"{words}.*JAX_ENABLE_X64=1"):
        JAX.from_host(array)


def test_jax_keeps_64_bit_floats_and_warns_itself_of_rounding() -> None:
    leaf = JAX.from_host(np.array([1 / 3]))
    assert leaf.dtype == np.float64 and float(leaf[0]) == 1 / 3
    with pytest.warns(UserWarning, match="float64.*truncated to dtype float32"):
        leaf + 1
    assert leaf.astype(jnp.float32).dtype == np.float32  # said on purpose: no warning


def test_jax_with_64_bits_keeps_everything() -> None:
    with jax.enable_x64(True):
        for dtype in DTYPES:
            limits = np.array([0, 1], dtype)
            if np.dtype(dtype).kind in "iu":
                limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
            leaf = JAX.from_host(limits)
            assert leaf.dtype == limits.dtype
            assert np.asarray(leaf).tobytes() == limits.tobytes()


# Reading


@pytest.mark.parametrize(
    "leaf",
    [
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones((), dtype=torch.bfloat16, requires_grad=True),
        jnp.ones(2, jnp.bfloat16),
        jnp.bfloat16(1),
    ],
)
def test_bfloat16_is_refused_with_the_remedy(leaf: Any) -> None:
    """VAL-10."""
    with pytest.raises(ValueError, match="bfloat16 is not supported on the wire; cast to float32"):
        to_host(leaf)
    framework = framework_of(leaf)
    assert framework is not None
    with pytest.raises(ValueError, match="bfloat16"):
        framework.to_host_many([leaf, leaf])


@pytest.mark.parametrize(
    "leaf",
    [
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([[1.0, 0.0], [2.0, 0.0]]).T[0],
        torch.complex(torch.zeros(2), torch.tensor([-1.0, -2.0])).conj().imag,  # lazily negated
        torch.nn.Parameter(torch.tensor([1.0, 2.0])),
        jnp.array([1.0, 2.0]),
    ],
    ids=["grad", "strided", "negated", "parameter", "jax"],
)
def test_whatever_tensor_it_is_it_is_read(leaf: Any) -> None:
    assert to_host(leaf).tolist() == [1, 2]
    assert tree_to_host({"a": leaf})["a"].tolist() == [1, 2]
    framework = framework_of(leaf)
    assert framework is not None
    assert tree_to_host([leaf, leaf, 3], framework)[1].tolist() == [1, 2]


def test_a_tensor_without_a_numpy_form_is_a_value_error() -> None:
    donated = jnp.ones(2)
    donated.delete()
    sparse = torch.ones(2).to_sparse()
    for framework, leaf in ((JAX, donated), (TORCH, sparse), (TORCH, torch.ones(2).to("meta"))):
        with pytest.raises(ValueError, match="cannot read"):
            framework.to_host_many([leaf, leaf])


# Adopting


@both
@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, 2.5], ">f4"),
        np.arange(6, dtype=np.float32)[::-2],
        np.broadcast_to(np.float32(2), (2, 2)),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.float32([1, 2]).view(np.ndarray),
        np.array(2.5, ">f8"),
        np.zeros((0, 3), np.uint8),
        torch.arange(3),
        jnp.arange(3),
        torch.tensor([True, False]),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}",
)
def test_arrays_of_any_layout_and_library_are_adopted(framework: Any, array: Any) -> None:
    expected = to_host(array)
    leaf = tree_adopter(framework)({"x": [array]})["x"][0]
    same_bits(leaf, expected.astype(expected.dtype.newbyteorder("=")), framework)


@both
def test_what_is_no_array_of_the_wire_stays_as_it_is(framework: Any) -> None:
    for leaf in (
        "go",
        3,
        2.5,
        True,
        None,
        np.float32(1),
        np.array(["a"]),
        np.array([1j]),
        object(),
    ):
        assert tree_adopter(framework)([leaf])[0] is leaf


@both
def test_its_own_leaves_are_not_touched(framework: Any) -> None:
    leaf = framework.from_host(np.zeros(3, np.float32))
    assert tree_adopter(framework)({"x": leaf})["x"] is leaf
    assert tree_adopter(framework)(leaf) is leaf


# Names


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("spell", [str, str.upper, lambda name: f" {name.title()}\n"])
def test_a_framework_is_found_by_its_name(name: str, spell: Any) -> None:
    """SRV-19: in any case, trimmed; an object stands for itself."""
    assert framework_named(spell(name)) is ALL[name]
    assert framework_named(ALL[name]) is ALL[name]
    assert framework_named(None) is None


def test_what_is_no_framework_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown framework 'mxnet': expected 'numpy', 'torch'"):
        framework_named("mxnet")
    with pytest.raises(TypeError, match=r"got float, which lacks name, .*from_host"):
        framework_named(1.5)


def test_a_leaf_tells_its_framework() -> None:
    class Own(torch.Tensor):
        pass

    assert framework_of(torch.ones(1)) is TORCH
    assert framework_of(torch.ones(1).as_subclass(Own)) is TORCH
    assert framework_of(jnp.ones(1)) is JAX
    assert framework_of(np.ones(1)) is NUMPY
    for leaf in (np.float32(1), torch.float32, 1.5, "torch", None, NATIVE):
        assert framework_of(leaf) is None


@both
def test_devices_are_named_as_the_framework_names_them(framework: Any) -> None:
    array = values("float32", (3,))
    for device in ("cpu", "cpu:0"):
        placed = framework.from_host(array.copy(), device)
        same_bits(placed, array, framework)
        same_bits(framework.to_device(placed, device), array, framework)
    with pytest.raises((ValueError, RuntimeError), match="nowhere"):
        framework.from_host(array, "nowhere:0")
    with pytest.raises((ValueError, RuntimeError), match="cpu"):
        framework.to_device(framework.from_host(array), "cpux")


@pytest.mark.parametrize("name", ["", ":0", "cpu:", "cpu:-1", "cpu:x"])
def test_half_a_name_is_no_device_of_jax(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected a JAX device such as cpu:0"):
        JAX.from_host(np.zeros(1, np.float32), name)


def test_jax_says_which_devices_there_are() -> None:
    with pytest.raises(ValueError, match=r"device 'cpu:9': expected a JAX device such as cpu:0"):
        JAX.from_host(np.zeros(1, np.float32), "cpu:9")
    assert JAX.from_host(np.zeros(1, np.float32), jax.devices()[0]).devices() == {jax.devices()[0]}


def test_the_dtypes_that_jax_holds_without_64_bits() -> None:
    for dtype in DTYPES:
        assert str(JAX.from_host(np.ones(1, dtype)).dtype) == held_as(dtype, JAX)
