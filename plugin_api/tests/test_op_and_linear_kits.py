"""The kits of fused ops and linear kernels accept right ones and see through wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from infer_plugin_api import LinearKernelDescriptor, OpDescriptor
from infer_plugin_api.linear import LinearContext, LinearKernel
from infer_plugin_api.ops import OPS
from infer_plugin_api.quant import LinearWeight
from infer_plugin_api.testing.linear import LinearConformance
from infer_plugin_api.testing.ops import KITS, op_suites

DTYPES = ("float32", "bfloat16")


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps).to(weight.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    residual += x
    return rms_norm(residual, weight, eps)


def add_rms_norm_of_a_copy(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    return rms_norm(residual + x, weight, eps)


def add_rms_norm_rounded(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    residual.copy_((residual + x).to(x.dtype))
    return rms_norm(residual, weight, eps)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate) * up


def silu_mul_swapped(gate_up: torch.Tensor) -> torch.Tensor:
    return silu_mul(gate_up.roll(gate_up.shape[-1] // 2, dims=-1))


def make_rope(*, interleaved: bool = False, slot_shift: int = 0, store: bool = True) -> Any:
    def rope(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        cache: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
        half = cos.shape[-1]
        for x in (query, key):
            low, high = slice(0, half), slice(half, 2 * half)
            if interleaved:
                low, high = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
            first, second = x[..., low].to(torch.float64), x[..., high].to(torch.float64)
            x[..., low] = (first * cos - second * sin).to(x.dtype)
            x[..., high] = (second * cos + first * sin).to(x.dtype)
        if store:
            slot = (slots + slot_shift) % (cache.shape[1] * 16)
            cache[0][slot // 16, slot % 16] = key
            cache[1][slot // 16, slot % 16] = value

    return rope


def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


def greedy_sample_last(logits: torch.Tensor) -> torch.Tensor:
    return logits.shape[-1] - 1 - logits.flip(-1).argmax(-1)


RIGHT: dict[str, Callable[..., Any]] = {
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "silu_mul": silu_mul,
    "rope_store_kv": make_rope(),
    "greedy_sample": greedy_sample,
}
WRONG: list[tuple[str, Callable[..., Any]]] = [
    ("rms_norm", lambda x, weight, eps: rms_norm(x, weight, 1e-2)),
    ("rms_norm", lambda x, weight, eps: rms_norm(x, weight + 0.05, eps)),
    ("rms_norm", lambda x, weight, eps: rms_norm(x, weight, eps).double()),
    ("rms_norm", lambda x, weight, eps: rms_norm(x, weight, eps).to(x.dtype)),
    ("add_rms_norm", add_rms_norm_of_a_copy),
    ("add_rms_norm", add_rms_norm_rounded),
    ("silu_mul", silu_mul_swapped),
    (
        "silu_mul",
        lambda gate_up: functional.gelu(gate_up.chunk(2, -1)[0]) * gate_up.chunk(2, -1)[1],
    ),
    ("rope_store_kv", make_rope(interleaved=True)),
    ("rope_store_kv", make_rope(slot_shift=1)),
    ("rope_store_kv", make_rope(store=False)),
    ("greedy_sample", greedy_sample_last),
    ("greedy_sample", lambda logits: logits.argmax(-1).int()),
]


def run_all(suite: type, **fixed: Any) -> None:
    """Call every test of a kit with all of its parameters."""
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        test = getattr(suite, name)
        marks = [*getattr(suite, "pytestmark", []), *getattr(test, "pytestmark", [])]
        calls: list[dict[str, Any]] = [{}]
        for mark in marks:
            names, values = mark.args[0], mark.args[1]
            names = (names,) if isinstance(names, str) else names
            rows = [value if len(names) > 1 else (value,) for value in values]
            calls = [call | dict(zip(names, row, strict=True)) for call in calls for row in rows]
        for call in calls:
            if call.get("dtype", DTYPES[0]) in DTYPES:
                getattr(suite(), name)(**call)


def suite_of(op: str, function: Callable[..., Any]) -> type:
    descriptor = OpDescriptor(name="x", op=op, implementation="nowhere:X", dtypes=DTYPES)
    (made,) = op_suites([descriptor]).values()
    return type(made.__name__, (made,), {"make": lambda self: function})


def test_every_fused_op_has_a_kit() -> None:
    assert KITS.keys() == OPS.keys()


@pytest.mark.parametrize("op", sorted(RIGHT))
def test_right_op_passes(op: str) -> None:
    run_all(suite_of(op, RIGHT[op]))


@pytest.mark.parametrize(("op", "function"), WRONG)
def test_wrong_op_fails(op: str, function: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError):
        run_all(suite_of(op, function))


class Linear(LinearKernel):
    """Plain torch, computing 16 rows at a time so that results don't depend on their number."""

    bias_factor = 1.0
    batch_factor = 0.0
    rounds_activations = False

    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        def linear(x: torch.Tensor) -> torch.Tensor:
            full = functional.pad(x, (0, 0, 0, -len(x) % 16))
            if self.rounds_activations:
                full = full.to(weight.weight.dtype).to(x.dtype)
            shift = None if bias is None else bias * self.bias_factor
            matrix = weight.weight.to(x.dtype)
            parts = [functional.linear(part, matrix, shift) for part in full.split(16)]
            return torch.cat(parts)[: len(x)] * (1 + self.batch_factor * len(x))

        return linear


class ForgetsTheBias(Linear):
    bias_factor = 0.0


class DependsOnTheBatch(Linear):
    batch_factor = 1e-6


class RoundsActivations(Linear):
    rounds_activations = True


def linear_suite(kernel: type[LinearKernel]) -> type:
    descriptor = LinearKernelDescriptor(
        name="x", implementation="nowhere:X", activation_dtypes=DTYPES, deterministic=True
    )
    made = {"descriptor": descriptor, "make": lambda self: kernel()}
    return type("Kit", (LinearConformance,), made)


def test_right_linear_kernel_passes() -> None:
    run_all(linear_suite(Linear))


@pytest.mark.parametrize("mutant", [ForgetsTheBias, DependsOnTheBatch, RoundsActivations])
def test_wrong_linear_kernel_fails(mutant: type[LinearKernel]) -> None:
    with pytest.raises(AssertionError):
        run_all(linear_suite(mutant))
