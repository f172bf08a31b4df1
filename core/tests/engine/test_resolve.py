"""Dtypes and lengths that nobody gave, and the size of the KV pool."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.engine.resolve import Resolved, capacity, resolve
from infer.execution.platforms.cpu import CPUPlatform
from infer_plugin_api.kv import KVSpec, block_bytes
from infer_plugin_api.models import ModelInfo

FULL = KVSpec(num_kv_heads=2, head_size=16, dtype="")
SLIDING = replace(FULL, kind="sliding", window=32)


class Plain(CPUPlatform):
    """A platform that computes in every dtype but float16."""

    def activation_dtype(self, dtype: str) -> str:
        return "float32" if dtype == "float16" else dtype


def info(dtype: str = "bfloat16", specs: tuple[KVSpec, ...] = (FULL, FULL)) -> ModelInfo:
    return ModelInfo(
        architecture="X", vocab_size=512, max_model_len=256, dtype=dtype, kv_specs=specs
    )


def resolved(model: ModelInfo | None = None, device: str = "cpu", **fields: Any) -> Resolved:
    return resolve(EngineConfig(**fields), model or info(), Plain(), device)


@pytest.mark.parametrize(
    ("stored", "asked", "device", "dtype", "kv_dtype"),
    [
        ("bfloat16", "auto", "cpu", "bfloat16", "bfloat16"),
        ("float32", "auto", "cpu", "float32", "float32"),
        ("float16", "auto", "cpu", "bfloat16", "bfloat16"),
        ("float16", "auto", "cuda", "float16", "float32"),
        ("float16", "float16", "cpu", "float16", "float32"),
        ("bfloat16", "float32", "cpu", "float32", "float32"),
    ],
)
def test_dtypes_follow_the_weights_and_the_platform(
    stored: str, asked: str, device: str, dtype: str, kv_dtype: str
) -> None:
    found = resolved(info(stored), device, dtype=asked)
    assert (found.config.dtype, found.config.kv_cache_dtype) == (dtype, kv_dtype)
    assert {group.spec.dtype for group in found.groups} == {kv_dtype}


def test_an_asked_cache_dtype_is_kept() -> None:
    assert resolved(kv_cache_dtype="float32").groups[0].spec.dtype == "float32"


def test_layers_with_equal_caches_share_a_group() -> None:
    groups = resolved(info(specs=(FULL, SLIDING, FULL, SLIDING))).groups
    assert [group.layers for group in groups] == [(0, 2), (1, 3)]


def test_the_models_length_is_the_default_and_the_limit() -> None:
    assert resolved().config.max_model_len == 256
    assert resolved(max_model_len=100).config.max_model_len == 100
    with pytest.raises(UserError, match="--max-model-len 257 is above the 256 tokens"):
        resolved(max_model_len=257)
    with pytest.raises(UserError, match="leaves no room"):
        resolved(max_model_len=1)


def size(available: int, asked: int | None = None, **fields: Any) -> Any:
    found = resolved(max_model_len=asked, max_num_seqs=4, **fields)
    return capacity(found, asked, block_bytes(found.groups, 16), available)


def test_the_pool_holds_all_requests_at_full_length_and_not_more() -> None:
    assert size(2**40).num_blocks == 4 * 256 // 16
    assert size(2**40).max_model_len == 256


def test_a_share_of_the_free_memory_is_taken() -> None:
    one = block_bytes(resolved().groups, 16)
    assert size(40 * one, gpu_memory_utilization=0.5).num_blocks == 20
    assert size(2**40, kv_cache_memory_bytes=17 * one).num_blocks == 17


def test_a_length_that_nobody_asked_for_is_reduced_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = block_bytes(resolved().groups, 16)
    with caplog.at_level(logging.WARNING):
        found = size(0, kv_cache_memory_bytes=3 * one)
    assert (found.num_blocks, found.max_model_len) == (3, 49), "the last token is never stored"
    assert "requests may have 49 tokens, not the model's 256" in caplog.text


@pytest.mark.parametrize(("blocks", "asked"), [(3, 50), (0, None), (0, 20)])
def test_a_pool_that_cannot_hold_one_request_is_refused(blocks: int, asked: int | None) -> None:
    one = block_bytes(resolved().groups, 16)
    with pytest.raises(UserError, match="--kv-cache-memory-bytes") as caught:
        size(0, asked, kv_cache_memory_bytes=blocks * one + 1)
    assert str(blocks * one + 1) in str(caught.value)
