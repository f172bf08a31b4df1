"""The engine's configuration: what the user asked for, before anything is resolved."""

from __future__ import annotations

from dataclasses import dataclass, field

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation

DTYPES = ("auto", "bfloat16", "float16", "float32")
SELECTIONS = ("priority",)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine. None and ``"auto"`` mean that the engine decides and says what it chose.

    model: a name that a model source knows; empty means the default model.
    dtype: of weights and activations. kv_cache_dtype: of keys and values.
    max_model_len: prompt plus answer of one request, in tokens.
    max_num_seqs: requests that run at once. max_num_batched_tokens: tokens of one step.
    kv_cache_memory_bytes: size of the KV pool; None derives it from the free memory with
    gpu_memory_utilization (share of the device that may be used in all).
    block_size: tokens of one KV block. seed: makes requests that bring no seed reproducible, in
    their order of arrival; None gives them fresh random ones.
    deterministic: one batch-invariant provider in every slot.
    cpu_threads: compute threads of the engine; None means the cores this process may use.
    override_generation_config: replaces values of the model's generation_config.json.
    """

    model: str = ""
    served_model_names: tuple[str, ...] = ()
    revision: str | None = None
    load_format: str = "auto"
    quantization: str | None = None
    trust_remote_code: bool = False
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    enable_prefix_caching: bool = True
    device: str | None = None
    attention_backend: str | None = None
    linear_kernel: str | None = None
    sampler: str | None = None
    scheduling_policy: str | None = None
    distributed_executor_backend: str | None = None
    selection: str = "priority"
    deterministic: bool = False
    seed: int | None = None
    cpu_threads: int | None = None
    max_logprobs: int = 20
    chat_template: str | None = None
    override_generation_config: dict[str, object] = field(default_factory=dict)
    plugins: PluginActivation = field(default_factory=PluginActivation)

    def __post_init__(self) -> None:
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("kv-cache-dtype", self.kv_cache_dtype, DTYPES)
        _one_of("selection", self.selection, SELECTIONS)
        for flag, value, least in (
            ("max-model-len", self.max_model_len, 1),
            ("max-num-seqs", self.max_num_seqs, 1),
            ("max-num-batched-tokens", self.max_num_batched_tokens, 1),
            ("kv-cache-memory-bytes", self.kv_cache_memory_bytes, 1),
            ("block-size", self.block_size, 1),
            ("cpu-threads", self.cpu_threads, 1),
            ("max-logprobs", self.max_logprobs, 0),
        ):
            if value is not None and value < least:
                raise UserError(f"--{flag} {value} must be at least {least}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise UserError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization} must be above 0, at most 1"
            )


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"--{flag} {value!r} is not known; choose one of {', '.join(allowed)}")
