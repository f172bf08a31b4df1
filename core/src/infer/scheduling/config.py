"""The scheduler's configuration and what it reports."""

from __future__ import annotations

from dataclasses import dataclass

from infer_plugin_api.execution import TokenLogprobs


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """max_num_seqs: requests that run at once, which is also the number of rows.
    max_num_batched_tokens: tokens of one step. max_model_len: prompt plus answer of a request.
    max_in_flight: plans that may be issued before the first one's result is known.
    lookahead: drafted tokens a decoding row verifies per step; 0 is no speculation.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    max_in_flight: int = 2
    lookahead: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("max_model_len", 2),
            ("max_in_flight", 1),
            ("lookahead", 0),
        ):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} {value} must be at least {least}")


@dataclass(frozen=True, slots=True)
class Update:
    """News of one request.

    token_ids: sampled since the last news; a stop id is included. logprobs: parallel to them.
    finish_reason: "stop", "length", "abort", "error" or None. stop_reason: the stop id, unless
    it is an end-of-sequence id.
    """

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: str | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class SchedulerStats:
    """Counters only grow. Prefix figures are tokens; steps are plans issued.

    step_tokens, prefill_requests and decode_requests describe the last plan; a request counts as
    decode when it computes past its prompt.
    """

    running: int
    waiting: int
    kv_blocks_used: int
    kv_blocks_total: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    steps: int
    step_tokens: int
    prefill_requests: int
    decode_requests: int
