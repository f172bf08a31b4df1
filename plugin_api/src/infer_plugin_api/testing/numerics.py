"""How far a result may be from float64."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from infer_plugin_api.descriptors import Provider

LIMIT = 7e-3
"""Largest relative L2 error of any dtype."""

_FLOOR = {torch.float32: 1e-6, torch.bfloat16: 2e-3, torch.float16: 3e-4}
"""Errors that are fine even where the reference happens to be exact: about rounding once."""


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative L2 error of *actual* against float64 *exact*; NaN when either has one."""
    scale = exact.norm().clamp_min(torch.finfo(torch.float64).tiny)
    return float((actual.double() - exact).norm() / scale)


def assert_accurate(
    actual: torch.Tensor, exact: torch.Tensor, reference: torch.Tensor, what: str
) -> None:
    """Assert that *actual* is about as good as *reference*, the plain torch result of its dtype.

    The relative L2 error may be three times the reference's and never above LIMIT; no single
    element may be off by more than rounding can explain.
    """
    assert actual.dtype == reference.dtype, f"{what}: {actual.dtype}, not {reference.dtype}"
    assert actual.shape == exact.shape, f"{what}: shape {actual.shape}, not {exact.shape}"
    if not exact.numel():
        return
    error = relative_error(actual, exact)
    allowed = min(LIMIT, max(3 * relative_error(reference, exact), _FLOOR[actual.dtype]))
    assert error <= allowed, f"{what}: relative error {error:.2e}, allowed {allowed:.2e}"
    worst, usual = (_largest_error(result, exact) for result in (actual, reference))
    single = max(3 * usual, 32 * torch.finfo(actual.dtype).eps)
    assert worst <= single, f"{what}: an element is off by {worst:.2e}, allowed {single:.2e}"


def _largest_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error of an element, relative to the largest element."""
    return float((actual.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30))


def load_implementation(provider: Provider) -> Any:
    """Import the class that a descriptor names."""
    module, _, attribute = provider.implementation.partition(":")
    return getattr(importlib.import_module(module), attribute)


def dtype_of(name: str) -> torch.dtype:
    """Return the torch dtype called *name*."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
