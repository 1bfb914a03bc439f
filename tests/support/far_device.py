"""A torch device that is not the CPU, on a machine without one: what lies there must be fetched.

torch hands every operation on ``torch.device("far")`` to the functions below, which do it in host
memory of their own. To everybody else these tensors are as a GPU's: ``numpy()``, ``memoryview`` and
mixing with CPU tensors fail, and ``.cpu()`` and ``.to()`` are transfers, which are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

__all__ = ["FAR", "fetched", "put"]

_setup_privateuseone_for_python_backend("far")

FAR = torch.device("far", 0)

put: list[tuple[int, ...]] = []
"""Shapes of what was brought to the device, in order."""
fetched: list[tuple[int, ...]] = []
"""Shapes of what was brought back."""


class _FarTensor(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> _FarTensor:
        made = torch._C._acc.create_empty_tensor(held.shape, held.dtype)
        made.__class__ = cls
        return made

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def __repr__(self) -> str:  # type: ignore[override]
        return f"far({self.held!r})"


def _there(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_there(item) for item in value]
    return value.held if isinstance(value, _FarTensor) else value


def _back(value: Any) -> Any:
    return [_FarTensor(item) for item in value] if isinstance(value, list) else _FarTensor(value)


def _define(name: str, key: str = "privateuseone") -> None:
    packet, _, overload = name.partition(".")
    operation: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload or "default")

    @torch.library.impl(f"aten::{name}", key)
    def there(*args: Any, **options: Any) -> Any:
        options = {name: _there(value) for name, value in options.items() if name != "device"}
        result = operation(*map(_there, args), **options)
        return _back(list(result) if isinstance(result, tuple) else result)


for _name in (
    *("_reshape_alias", "_unsafe_view", "add.Tensor", "alias", "as_strided", "cat", "clone"),
    *("detach", "eq.Scalar", "expand", "ge.Scalar", "gt.Scalar", "le.Scalar", "lt.Scalar"),
    *("mul.Tensor", "neg", "select.int", "slice.Tensor", "stack", "sub.Tensor", "unbind.int"),
    *("unsqueeze", "view", "view.dtype"),
):
    _define(_name)
_define("view.dtype", "AutogradPrivateUse1")  # autograd's own would drop the class


@torch.library.impl("aten::empty.memory_format", "privateuseone")
def _empty(size: Any, dtype: Any = None, **options: Any) -> Any:
    return _FarTensor(torch.empty(size, dtype=dtype))


@torch.library.impl("aten::empty_strided", "privateuseone")
def _empty_strided(size: Any, stride: Any, dtype: Any = None, **options: Any) -> Any:
    return _FarTensor(torch.empty_strided(size, stride, dtype=dtype))


@torch.library.impl("aten::_copy_from", "privateuseone")
def _copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    if not isinstance(source, _FarTensor):
        put.append(tuple(source.shape))
    elif not isinstance(target, _FarTensor):
        fetched.append(tuple(source.shape))
    _there(target).copy_(_there(source))
    return target
