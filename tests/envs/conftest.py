"""Fixtures of the env tests."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from rlmesh.transport.native import NativeChannel, NotNative


def _not_native(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotNative("this test goes to the other door")


@pytest.fixture(params=["native", "grpc"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test once through each door: clients use the one named."""
    if request.param == "grpc":
        monkeypatch.setattr(NativeChannel, "open", _not_native)
    return request.param
