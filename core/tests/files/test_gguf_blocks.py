"""GGUF's block formats, bit for bit as the gguf library dequantizes them."""

from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from infer.modeling.providers.gguf_blocks import DEQUANTIZE
from infer.modeling.providers.gguf_format import GGUFFormat


@pytest.mark.parametrize("kind", DEQUANTIZE)
def test_any_block_has_the_values_of_the_reference(kind: str) -> None:
    """Random bytes: every bit pattern of weights and scales, infinities and NaN among them."""
    number = gguf.GGMLQuantizationType[kind]
    weights, size = gguf.GGML_QUANT_SIZES[number]
    blocks = np.random.default_rng(0).integers(0, 256, (2000, size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        found, expected = DEQUANTIZE[kind](blocks), gguf.quants.dequantize(blocks, number)
    assert found.shape == (2000, weights)
    assert found.dtype == np.float32
    usual = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~usual)
    assert np.array_equal(found.view(np.uint32)[usual], expected.view(np.uint32)[usual])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_what_the_library_quantizes_comes_back_nearly(kind: str) -> None:
    values = np.random.default_rng(1).normal(0, 1, (64, 256)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind]
    _, size = gguf.GGML_QUANT_SIZES[number]
    blocks = gguf.quants.quantize(values, number).reshape(-1, size)
    error = np.abs(DEQUANTIZE[kind](blocks).reshape(values.shape) - values).max()
    assert error < {"8": 0.02, "5": 0.2, "4": 0.4}[kind[1]]


@pytest.mark.timeout(60)
def test_the_default_model_is_dequantized_well_within_a_second(smollm2_path: Path) -> None:
    reader = GGUFFormat().open(smollm2_path, {})

    def seconds() -> float:
        started = time.process_time()
        for name in reader.tensors():
            reader.read(name)
        return time.process_time() - started

    assert min(seconds() for _ in range(3)) < 0.8
