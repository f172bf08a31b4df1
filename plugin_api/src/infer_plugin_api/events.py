"""Events that the engine tells its listeners; see the event hooks in hookspecs.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineEvent:
    """model: served name. detail: a few facts, e.g. ``{"kv_blocks": "1024"}``."""

    model: str
    detail: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class RequestEvent:
    """time: seconds of the monotonic clock. Token counts are those known at the event.

    finish_reason: empty until the request has finished.
    """

    request_id: str
    time: float
    num_prompt_tokens: int
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    finish_reason: str = ""
