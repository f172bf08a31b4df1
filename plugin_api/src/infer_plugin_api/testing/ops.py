"""Conformance of fused ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
import torch
from torch.nn import functional

from infer_plugin_api.descriptors import OpDescriptor
from infer_plugin_api.testing.numerics import assert_accurate, dtype_of, load_implementation

_DTYPES = ["float32", "bfloat16", "float16"]
_ROWS = [1, 5, 64, 300]
_EPS = 1e-5


class OpConformance:
    """Base of the kits below; override *make* to build the op in another way."""

    descriptor: ClassVar[OpDescriptor]

    def make(self) -> Any:
        return load_implementation(self.descriptor)()

    def dtype(self, name: str) -> torch.dtype:
        if name not in self.descriptor.dtypes:
            pytest.skip(f"{name} not declared")
        return dtype_of(name)


def _random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + _EPS) * weight.double()


@pytest.mark.parametrize("dtype", _DTYPES)
class RmsNormConformance(OpConformance):
    """``rms_norm``."""

    @pytest.mark.parametrize("rows", _ROWS)
    @pytest.mark.parametrize("size", [1, 7, 64, 100, 576, 4096])
    def test_norm_is_as_accurate_as_torch(self, rows: int, size: int, dtype: str) -> None:
        x = _random(rows, size, dtype=self.dtype(dtype))
        weight = _random(size, dtype=x.dtype, seed=1)
        kept = x.clone()
        out = self.make()(x, weight, _EPS)
        assert out.dtype == x.dtype
        assert torch.equal(x, kept)
        reference = functional.rms_norm(x, (size,), weight, _EPS)
        assert_accurate(out, _rms_norm(x, weight), reference, "rms_norm")

    def test_float32_is_normed_into_the_dtype_of_the_weight(self, dtype: str) -> None:
        x = _random(33, 100, dtype=torch.float32)
        weight = _random(100, dtype=self.dtype(dtype), seed=1)
        out = self.make()(x, weight, _EPS)
        assert out.dtype == weight.dtype
        expected = _rms_norm(x, weight)
        assert_accurate(out, expected, expected.to(weight.dtype), "rms_norm of float32")

    def test_heads_of_a_packed_projection_are_normed(self, dtype: str) -> None:
        heads = _random(5, 9, 64, dtype=self.dtype(dtype))[:, 2:6]
        weight = _random(64, dtype=heads.dtype, seed=1)
        out = self.make()(heads, weight, _EPS)
        reference = functional.rms_norm(heads, (64,), weight, _EPS)
        assert_accurate(out, _rms_norm(heads, weight), reference, "rms_norm of heads")

    def test_row_does_not_depend_on_other_rows(self, dtype: str) -> None:
        x = _random(37, 576, dtype=self.dtype(dtype))
        weight = _random(576, dtype=x.dtype, seed=1)
        op = self.make()
        alone = op(x[11:12], weight, _EPS)
        x[12:] = float("nan")
        assert torch.equal(op(x, weight, _EPS)[11:12], alone)


@pytest.mark.parametrize("dtype", _DTYPES)
class AddRmsNormConformance(OpConformance):
    """``add_rms_norm``."""

    @pytest.mark.parametrize("rows", _ROWS)
    @pytest.mark.parametrize("size", [1, 7, 100, 576, 4096])
    def test_float32_residual_is_summed_in_full(self, rows: int, size: int, dtype: str) -> None:
        x = _random(rows, size, dtype=self.dtype(dtype))
        residual = _random(rows, size, dtype=torch.float32, seed=1)
        weight = _random(size, dtype=x.dtype, seed=2)
        total = residual + x
        out = self.make()(x, residual, weight, _EPS)
        assert out.dtype == x.dtype
        assert torch.equal(residual, total)
        expected = _rms_norm(total, weight)
        assert_accurate(out, expected, expected.to(x.dtype), "add_rms_norm")

    @pytest.mark.parametrize("rows", _ROWS)
    @pytest.mark.parametrize("size", [1, 7, 100, 576, 4096])
    def test_sum_is_kept_and_normed(self, rows: int, size: int, dtype: str) -> None:
        x = _random(rows, size, dtype=self.dtype(dtype))
        residual = _random(rows, size, dtype=x.dtype, seed=1)
        weight = _random(size, dtype=x.dtype, seed=2)
        total = residual + x
        out = self.make()(x, residual, weight, _EPS)
        assert torch.equal(residual, total)
        reference = functional.rms_norm(total, (size,), weight, _EPS)
        assert_accurate(out, _rms_norm(total, weight), reference, "add_rms_norm")

    def test_row_does_not_depend_on_other_rows(self, dtype: str) -> None:
        x = _random(37, 576, dtype=self.dtype(dtype))
        weight = _random(576, dtype=x.dtype, seed=2)
        residual = _random(37, 576, dtype=x.dtype, seed=1)
        alone = self.make()(x[11:12].clone(), residual[11:12].clone(), weight, _EPS)
        assert torch.equal(self.make()(x, residual, weight, _EPS)[11:12], alone)


@pytest.mark.parametrize("dtype", _DTYPES)
class SiluMulConformance(OpConformance):
    """``silu_mul``."""

    @pytest.mark.parametrize("rows", _ROWS)
    @pytest.mark.parametrize("size", [1, 7, 100, 1536])
    def test_product_is_as_accurate_as_torch(self, rows: int, size: int, dtype: str) -> None:
        gate_up = _random(rows, 2 * size, dtype=self.dtype(dtype)) * 4
        out = self.make()(gate_up)
        assert out.dtype == gate_up.dtype
        gate, up = gate_up.chunk(2, dim=-1)
        exact = functional.silu(gate.double()) * up.double()
        assert_accurate(out, exact, functional.silu(gate) * up, "silu_mul")

    def test_large_gates_saturate(self, dtype: str) -> None:
        kind = self.dtype(dtype)
        gate = torch.tensor([[-200.0, -60.0, -1e4, 200.0, 1e4, 0.0]], dtype=kind)
        out = self.make()(torch.cat([gate, torch.ones_like(gate)], dim=1))
        assert torch.allclose(out, functional.silu(gate), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", _DTYPES)
class RopeStoreKVConformance(OpConformance):
    """``rope_store_kv``."""

    @pytest.mark.parametrize("tokens", _ROWS)
    @pytest.mark.parametrize(
        ("heads", "kv_heads", "head_size", "rotary"),
        [(9, 3, 64, 64), (4, 4, 80, 32), (8, 1, 128, 128), (2, 2, 24, 24), (3, 1, 20, 10)],
    )
    def test_rotated_keys_and_values_are_stored(
        self, tokens: int, heads: int, kv_heads: int, head_size: int, rotary: int, dtype: str
    ) -> None:
        case = _RopeCase(tokens, heads, kv_heads, head_size, rotary, self.dtype(dtype))
        case.check(self.make())

    def test_padded_blocks_are_respected(self, dtype: str) -> None:
        case = _RopeCase(9, 4, 2, 64, 64, self.dtype(dtype), padding=5)
        case.check(self.make())


class _RopeCase:
    """Inputs of ``rope_store_kv`` as views of packed rows, and what must come out."""

    def __init__(
        self,
        tokens: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        rotary: int,
        dtype: torch.dtype,
        padding: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(tokens)
        packed = torch.randn((tokens, (heads + 2 * kv_heads) * head_size), generator=generator)
        sizes = [heads * head_size, kv_heads * head_size, kv_heads * head_size]
        self.query, self.key, self.value = (
            torch.unflatten(part, -1, (-1, head_size))
            for part in torch.split(packed.to(dtype), sizes, dim=-1)
        )
        angles = torch.rand((500, rotary // 2), generator=generator) * 6
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], dim=-1)
        self.positions = torch.randint(0, 500, (tokens,), generator=generator)
        page, blocks = 16, tokens // 16 + 3
        elements = page * kv_heads * head_size
        flat = torch.full((2, blocks, elements + padding), float("nan"), dtype=dtype)
        self.cache = torch.unflatten(flat[:, :, :elements], -1, (page, kv_heads, head_size))
        self.slots = torch.randperm(blocks * page, generator=generator)[:tokens]

    def check(self, op: Any) -> None:
        exact = {name: self._rotated(getattr(self, name)) for name in ("query", "key")}
        value = self.value.clone()
        untouched = torch.ones(self.cache.shape[1:3], dtype=torch.bool)
        block, offset = self.slots // 16, self.slots % 16
        untouched[block, offset] = False
        op(
            self.query,
            self.key,
            self.value,
            self.cos_sin,
            self.positions,
            self.cache,
            self.slots,
        )
        for name, expected in exact.items():
            rounded = expected.to(self.query.dtype)
            assert_accurate(getattr(self, name), expected, rounded, name)
        assert torch.equal(self.cache[0][block, offset], self.key)
        assert torch.equal(self.cache[1][block, offset], value)
        assert torch.equal(self.value, value)
        assert self.cache[:, untouched].isnan().all(), "slots of nobody were written"

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.cos_sin.double()[self.positions].unsqueeze(1).chunk(2, dim=-1)
        half = cos.shape[-1]
        wide = x.double()
        first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


@pytest.mark.parametrize("dtype", _DTYPES)
class GreedySampleConformance(OpConformance):
    """``greedy_sample``."""

    @pytest.mark.parametrize("rows", [1, 3, 64])
    @pytest.mark.parametrize("vocab", [1, 5, 1000, 49152, 50257])
    def test_index_of_the_largest_logit(self, rows: int, vocab: int, dtype: str) -> None:
        logits = _random(rows, vocab, dtype=self.dtype(dtype))
        out = self.make()(logits)
        assert out.dtype == torch.int64
        assert out.tolist() == _first_largest(logits)

    def test_first_of_equal_logits(self, dtype: str) -> None:
        logits = torch.zeros((4, 3001), dtype=self.dtype(dtype))
        logits[1, [700, 1500, 3000]] = 2
        logits[2] = -float("inf")
        logits[3] = -float("inf")
        logits[3, [2990, 3000]] = -5
        assert self.make()(logits).tolist() == [0, 700, 0, 2990]

    def test_last_and_first_places(self, dtype: str) -> None:
        logits = torch.zeros((2, 2049), dtype=self.dtype(dtype))
        logits[0, 0] = logits[1, 2048] = float("inf")
        assert self.make()(logits).tolist() == [0, 2048]

    def test_strided_rows(self, dtype: str) -> None:
        logits = _random(6, 2000, dtype=self.dtype(dtype))[::2, 100:1900]
        assert self.make()(logits).tolist() == _first_largest(logits)


def _first_largest(logits: torch.Tensor) -> list[int]:
    return [row.index(max(row)) for row in logits.double().tolist()]


KITS: dict[str, type[OpConformance]] = {
    "rms_norm": RmsNormConformance,
    "add_rms_norm": AddRmsNormConformance,
    "silu_mul": SiluMulConformance,
    "rope_store_kv": RopeStoreKVConformance,
    "greedy_sample": GreedySampleConformance,
}
"""The kit of each fused op."""


def op_suites(descriptors: Iterable[OpDescriptor]) -> dict[str, type]:
    """Return one test class per descriptor: ``globals().update(op_suites(infer_ops()))``."""
    suites = {}
    for descriptor in descriptors:
        kit = KITS[descriptor.op]
        name = f"Test{kit.__name__.removesuffix('Conformance')}"
        suites[name] = type(name, (kit,), {"descriptor": descriptor})
    return suites
