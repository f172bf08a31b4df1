"""From what a caller gives to what EngineCore takes: ids, checked against the model."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.engine.messages import EngineRequest
from infer.modeling.files import ModelFiles
from infer.plugins.registry import Registry
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.sampling import ParameterError, SamplingParams

Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or a mapping with ``prompt`` or ``prompt_token_ids`` and ``cache_salt``."""

_PROMPT_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt"})
_MASK = (1 << 64) - 1
_SURELY_QUICK = 100_000
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Prepared:
    """A caller's request: one EngineRequest per answer, in order of their index."""

    request_id: str
    text: str | None
    prompt_token_ids: list[int]
    params: SamplingParams
    children: tuple[EngineRequest, ...]


class InputProcessor:
    """Checks and tokenizes prompts. Safe to call from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        files: ModelFiles,
        registry: Registry,
        config: EngineConfig,
        *,
        vocab_size: int,
        max_model_len: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self.eos_ids = tuple(dict.fromkeys((*files.eos_token_ids, *tokenizer.eos_ids)))
        self._registry = registry
        self._config = config
        self._numbers = itertools.count()

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str = "",
        *,
        add_special_tokens: bool = True,
    ) -> Prepared:
        """Return the engine's requests. Raises ParameterError naming the field that is wrong."""
        text, ids, salt = self._parts(prompt, add_special_tokens)
        self._check_prompt(ids)
        params = self._checked(params)
        number = next(self._numbers)
        # Callers may repeat their ids; the engine's own never repeat.
        unique = f"{request_id or 'request'}-{number}"
        seed = params.seed if params.seed is not None else self._fresh_seed(number)
        stop_ids = params.stop_token_ids if params.ignore_eos else self._stop_ids(params)
        now = time.time()
        children = tuple(
            EngineRequest(
                request_id=f"{unique}-{index}",
                prompt_token_ids=ids,
                params=params,
                seed=child_seed(seed, index),
                stop_ids=stop_ids,
                eos_ids=self.eos_ids,
                cache_salt=salt,
                arrival=now,
            )
            for index in range(params.n)
        )
        return Prepared(unique, text, ids, params, children)

    def _parts(self, prompt: Prompt, add_special_tokens: bool) -> tuple[str | None, list[int], str]:
        salt = ""
        if isinstance(prompt, Mapping):
            unknown = sorted(set(prompt) - _PROMPT_KEYS)
            if unknown:
                raise ParameterError("prompt", f"unknown key {unknown[0]!r}")
            salt = prompt.get("cache_salt") or ""
            if not isinstance(salt, str):
                raise ParameterError("cache_salt", f"{salt!r} is not a string")
            prompt = prompt.get("prompt_token_ids") or prompt.get("prompt") or ""
        if isinstance(prompt, str):
            self._check_text(prompt)
            return prompt, self.tokenizer.encode(prompt, add_special_tokens), salt
        return None, list(prompt), salt

    def _check_text(self, text: str) -> None:
        """Refuse text that is too long in any case, before tokenizing it takes seconds."""
        if len(text) <= _SURELY_QUICK or len(text) <= self.max_model_len:
            return
        least = len(text.encode(errors="replace")) // self.tokenizer.longest_token
        if least >= self.max_model_len:
            raise ParameterError(
                "prompt",
                f"it has at least {least} tokens; the model takes {self.max_model_len} for prompt "
                "and answer together",
            )

    def _check_prompt(self, ids: list[int]) -> None:
        if not ids:
            raise ParameterError("prompt", "it is empty; give at least one token")
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int):
                raise ParameterError("prompt", f"{token!r} is not a token id")
            if not 0 <= token < self.vocab_size:
                raise ParameterError("prompt", self._outside(token))
        if len(ids) >= self.max_model_len:
            raise ParameterError(
                "prompt",
                f"it has {len(ids)} tokens; the model takes {self.max_model_len} for prompt and "
                f"answer together, so at most {self.max_model_len - 1}",
            )

    def _checked(self, params: SamplingParams) -> SamplingParams:
        for name, ids in (
            ("logit_bias", params.logit_bias),
            ("stop_token_ids", params.stop_token_ids),
        ):
            for token in ids:
                if not 0 <= token < self.vocab_size:
                    raise ParameterError(name, self._outside(token))
        if params.logprobs is not None and params.logprobs > self._config.max_logprobs:
            raise ParameterError(
                "logprobs", f"{params.logprobs} is above --max-logprobs {self._config.max_logprobs}"
            )
        for name in params.logits_processors:
            try:
                self._registry.find("logits_processor", name)
            except UserError as error:
                raise ParameterError("logits_processors", str(error)) from None
        if not params.bad_words:
            return params
        return replace(params, bad_words_token_ids=self._bad_words(params.bad_words))

    def _outside(self, token: int) -> str:
        return f"token id {token} is outside the vocabulary (0 to {self.vocab_size - 1})"

    def _bad_words(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Return each word's ids, as it begins a text and as it follows a space."""
        variants = (
            tuple(self.tokenizer.encode(form, add_special_tokens=False))
            for word in words
            for form in (word, f" {word.lstrip()}")
        )
        return tuple(dict.fromkeys(ids for ids in variants if ids))

    def _stop_ids(self, params: SamplingParams) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.eos_ids, *params.stop_token_ids)))

    def _fresh_seed(self, number: int) -> int:
        if self._config.seed is None:
            return secrets.randbits(63)
        return mix(self._config.seed + number * _GOLDEN)


def child_seed(seed: int, index: int) -> int:
    """Seed of answer *index*: the request's own for the first, then mixed with the index."""
    return seed if index == 0 else mix(seed + index * _GOLDEN)


def mix(value: int) -> int:
    """One step of SplitMix64 (Steele, Lea and Flood, 2014), kept to 63 bits."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 1


def default_sampling_params(files: ModelFiles) -> dict[str, Any]:
    """Return the sampling values that a model's generation_config recommends."""
    config = files.generation_config
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    found = {name: config[name] for name in names if config.get(name) is not None}
    if config.get("do_sample") is False:
        found["temperature"] = 0.0
    if "max_new_tokens" in config:
        found["max_tokens"] = config["max_new_tokens"]
    return found
