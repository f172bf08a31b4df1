"""What the engine's two processes say to each other, as msgpack.

One frame per step and direction carries every request's news. Nothing here holds a tensor.
"""

from __future__ import annotations

import msgspec

from infer_plugin_api.execution import TokenLogprobs
from infer_plugin_api.sampling import SamplingParams


class EngineRequest(msgspec.Struct, frozen=True):
    """A request as EngineCore takes it; ids are unique, made by the front.

    seed: of the random stream. stop_ids: ids that end it (EOS and the user's), in any order.
    eos_ids: the subset that ``stop_reason`` does not report.
    cache_salt: separates prefix-cache entries. arrival: time.time() at the front, seconds.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    seed: int
    stop_ids: tuple[int, ...]
    eos_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    arrival: float = 0.0


class TokenOutput(msgspec.Struct, frozen=True):
    """News of one request: ids sampled since the last news, and how it ended if it did.

    finish_reason: "stop", "length", "abort" or "error". stop_reason: the user's stop id.
    first_scheduled: time.time() when it first computed, sent with the first token.
    """

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    first_scheduled: float = 0.0


class EngineStats(msgspec.Struct, frozen=True):
    """State after a step. Counters only grow; prefix figures are tokens.

    step_seconds, step_tokens, prefill_requests and decode_requests describe the last step.
    """

    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    step_tokens: int = 0
    prefill_requests: int = 0
    decode_requests: int = 0


class StepOutputs(msgspec.Struct, frozen=True, tag="outputs"):
    outputs: list[TokenOutput]
    stats: EngineStats


class EngineInfo(msgspec.Struct, frozen=True, tag="ready"):
    """What the engine turned out to be; sent once when it is ready.

    providers: what serves each slot, ``plugin:name`` by slot (and bucket).
    """

    model: str
    architecture: str
    vocab_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    block_bytes: int
    dtype: str
    device: str
    weight_bytes: int
    load_seconds: float
    providers: dict[str, str]


class EngineFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine ends. user_error: the reason is the user's to fix (exit code 2)."""

    reason: str
    user_error: bool = False


class AddRequests(msgspec.Struct, frozen=True, tag="add"):
    requests: list[EngineRequest]


class AbortRequests(msgspec.Struct, frozen=True, tag="abort"):
    request_ids: list[str]


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Finish the current step and end in order."""


FromFront = AddRequests | AbortRequests | Shutdown
FromEngine = StepOutputs | EngineInfo | EngineFailed
