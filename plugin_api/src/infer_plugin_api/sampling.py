"""Sampling: a request's parameters, and the objects that turn logits into token ids."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_STOP_STRINGS = 64
GREEDY_TEMPERATURE = 1e-5
"""Below this temperature sampling is greedy: scaled logits would overflow float32."""


class ParameterError(ValueError):
    """A sampling parameter has a wrong value; ``param`` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is sampled. Values are checked when it is made (ParameterError).

    n: number of answers. max_tokens: None means up to the model's length.
    min_tokens: no stop of any kind before that many tokens.
    temperature: 0 is greedy. top_k: 0 or -1 means all. seed: None takes a fresh random one.
    stop: strings that end the answer (cut off unless include_stop_str_in_output).
    ignore_eos: go on past the model's end-of-sequence ids.
    presence_penalty, frequency_penalty: over generated tokens (OpenAI's definition).
    repetition_penalty: over prompt and generated tokens (Keskar et al., 2019); 1 is off.
    logit_bias: token id -> added to its logit. bad_words: texts that must not be generated.
    bad_words_token_ids: the same as ids, filled by the engine's input processor.
    logprobs: number of alternatives to report per token (0: the chosen token only), None: none.
    logits_processors: registered names, applied in order.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    logprobs: int | None = None
    priority: int = 0
    logits_processors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("stop", "stop_token_ids", "bad_words", "logits_processors"):
            value = getattr(self, name)
            if isinstance(value, (str, int)):
                value = (value,)
            object.__setattr__(self, name, tuple(value or ()))
        _check_integer("n", self.n, 1, MAX_CHOICES)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, 1)
        _check_integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(
                "min_tokens", f"{self.min_tokens} is above max_tokens ({self.max_tokens})"
            )
        _check_number("temperature", self.temperature, 0.0, 100.0)
        _check_number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_integer("top_k", self.top_k, -1)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        if self.seed is not None:
            _check_integer("seed", self.seed, -(2**63), 2**64 - 1)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0)
        _check_integer("priority", self.priority, -(2**31), 2**31 - 1)
        if len(self.stop) > MAX_STOP_STRINGS:
            raise ParameterError("stop", f"{len(self.stop)} strings, at most {MAX_STOP_STRINGS}")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ParameterError("stop", f"{text!r} is not a non-empty string")
        for token in self.stop_token_ids:
            _check_integer("stop_token_ids", token, 0)
        for token, bias in self.logit_bias.items():
            _check_integer("logit_bias", token, 0)
            _check_number("logit_bias", bias, -100.0, 100.0)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE or self.top_k == 1


def _check_integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(name, f"{value!r} is not an integer")
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ParameterError(name, f"{value} must be {limits}")


def _check_number(
    name: str, value: Any, low: float, high: float, *, open_low: bool = False
) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParameterError(name, f"{value!r} is not a number")
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        above = "above" if open_low else "at least"
        raise ParameterError(name, f"{value} must be {above} {low:g} and at most {high:g}")


@dataclass(frozen=True, kw_only=True)
class SamplingBatch:
    """Parameters of the S rows to be sampled in one step, as tensors on the logits' device.

    temperature, top_p, min_p: float32 [S]; top_k: int64 [S], vocabulary size where off.
    seeds, positions: int64 [S]; a row's random number is a function of these two only.
    greedy: bool [S]. The flags say whether any row needs a stage at all.
    """

    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    greedy: torch.Tensor
    all_greedy: bool
    any_greedy: bool
    any_top_k: bool
    any_top_p: bool
    any_min_p: bool


class Sampler(ABC):
    """Draws one token a row."""

    @abstractmethod
    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        """Return int64 [S] from float32 logits [S, vocab], which may be overwritten.

        Penalties, biases and masks have been applied. Order: temperature, min_p, top_k, top_p,
        draw. A row's token depends on its logits, parameters, seed and position only.
        """


@dataclass(frozen=True, kw_only=True)
class LogitsContext:
    """What a logits processor is made for: one request."""

    params: SamplingParams
    prompt_token_ids: Sequence[int]
    vocab_size: int


class LogitsProcessor(ABC):
    """Changes one request's logits; one instance per request, made at admission.

    After a preemption a new instance is made and ``apply`` sees all generated ids again.
    """

    def __init__(self, context: LogitsContext) -> None:
        self.context = context

    @abstractmethod
    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        """Change *logits* (float32 [vocab]) in place, given the ids generated so far."""
