"""What the fronts yield to their callers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TokenLogprob:
    """One position: the chosen token and the most likely alternatives, best first.

    text is the token alone (a broken character shows as the replacement sign); bytes are exact.
    """

    token_id: int
    text: str
    bytes: bytes
    logprob: float
    rank: int = 0
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Delta:
    """What is new of answer *index* of a request. Joined, the texts are the answer.

    finish_reason: "stop", "length", "abort" or "error", on the last delta of the index.
    stop_reason: the stop string or stop id that ended it. num_output_tokens: so far, of the index.
    first_scheduled: time.time() when it first computed, on the index's first delta; else 0.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    first_scheduled: float = 0.0


@dataclass
class CompletionOutput:
    """One finished or growing answer."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass
class RequestOutput:
    """A request's answers. ``outputs[i].text`` is answer i of ``SamplingParams.n``."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    finished: bool = False
