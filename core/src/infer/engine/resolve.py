"""From what the user asked for to what the engine will do: pure functions."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.kv_cache.capacity import max_model_len_that_fits
from infer_plugin_api.kv import KVGroup, group_layers
from infer_plugin_api.models import ModelInfo
from infer_plugin_api.platform import Platform

log = logging.getLogger(__name__)

_SHORTEST = 2


@dataclass(frozen=True)
class Resolved:
    """config: without ``auto`` in dtypes and lengths. groups: the model's KV groups."""

    config: EngineConfig
    groups: tuple[KVGroup, ...]


def resolve(config: EngineConfig, info: ModelInfo, platform: Platform, device: str) -> Resolved:
    """Fill in dtypes and lengths. Raises UserError for a length that the model has not."""
    dtype = config.dtype if config.dtype != "auto" else info.dtype
    if config.dtype == "auto" and dtype == "float16" and device == "cpu":
        log.info("the weights are float16, which CPUs compute slowly: using bfloat16")
        dtype = "bfloat16"
    kv_dtype = config.kv_cache_dtype
    if kv_dtype == "auto":
        kv_dtype = platform.activation_dtype(dtype)
    wanted = config.max_model_len or info.max_model_len
    if wanted > info.max_model_len:
        raise UserError(
            f"--max-model-len {wanted} is above the {info.max_model_len} tokens "
            "that the model was made for"
        )
    if wanted < _SHORTEST:
        raise UserError(f"--max-model-len {wanted} leaves no room for a prompt and an answer")
    specs = tuple(replace(spec, dtype=spec.dtype or kv_dtype) for spec in info.kv_specs)
    resolved = replace(config, dtype=dtype, kv_cache_dtype=kv_dtype, max_model_len=wanted)
    return Resolved(resolved, group_layers(specs))


@dataclass(frozen=True)
class Capacity:
    """Blocks of the KV pool, and the longest request that it can hold."""

    num_blocks: int
    max_model_len: int


def capacity(
    resolved: Resolved, asked_len: int | None, block_bytes: int, available_bytes: int
) -> Capacity:
    """Size the pool: what the memory holds, but not more than all requests at full length need.

    asked_len: what the user gave as --max-model-len. Raises UserError when the pool can't hold one
    request of that length; a length that nobody asked for is reduced, with a line in the log.
    """
    config, groups = resolved.config, resolved.groups
    assert config.max_model_len is not None
    budget = config.kv_cache_memory_bytes
    if budget is None:
        budget = int(available_bytes * config.gpu_memory_utilization)
    per_request = len(groups) * -(-config.max_model_len // config.block_size)
    num_blocks = min(budget // block_bytes, config.max_num_seqs * per_request)
    fits = 0
    if num_blocks >= len(groups):
        fits = max_model_len_that_fits(groups, num_blocks, config.block_size, config.max_model_len)
    if fits < _SHORTEST or (asked_len is not None and fits < asked_len):
        raise UserError(
            f"the KV cache of {budget} bytes holds {fits} tokens, but one request may have "
            f"{asked_len or _SHORTEST} (--max-model-len); give it more with "
            f"--kv-cache-memory-bytes (a block of {config.block_size} tokens takes {block_bytes} "
            "bytes) or lower --max-model-len"
        )
    if fits < config.max_model_len:
        log.warning(
            "requests may have %d tokens, not the model's %d: more do not fit the KV cache of %d "
            "bytes (--kv-cache-memory-bytes)",
            fits,
            config.max_model_len,
            budget,
        )
    return Capacity(num_blocks, fits)
