"""From a request body to SamplingParams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer.server.errors import ApiError, bad_request
from infer.server.requests import ChatRequest, CompletionRequest, GenerationRequest
from infer_plugin_api.sampling import ParameterError, SamplingParams

_SAME_NAME = (
    "n",
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "seed",
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
    "ignore_eos",
    "include_stop_str_in_output",
    "bad_words",
    "priority",
    "logits_processors",
)


def chat_params(
    request: ChatRequest, defaults: Mapping[str, Any], max_logprobs: int
) -> SamplingParams:
    """Return the parameters of a chat; without a limit the answer may fill the model's length."""
    given: dict[str, Any] = {"max_tokens": None}
    if request.max_completion_tokens is not None:
        given["max_tokens"] = request.max_completion_tokens
    top = request.top_logprobs
    if top and not request.logprobs:
        raise bad_request("top_logprobs", "top_logprobs needs logprobs: true")
    if top is not None and not 0 <= top <= max_logprobs:
        raise bad_request("top_logprobs", f"top_logprobs {top} is not in 0 to {max_logprobs}")
    given["logprobs"] = (top or 0) if request.logprobs else None
    return _params(request, defaults, given)


def completion_params(
    request: CompletionRequest, defaults: Mapping[str, Any], max_logprobs: int
) -> SamplingParams:
    """Return the parameters of a completion; the answer has 16 tokens when no limit is given."""
    count = request.logprobs
    if count is not None and not 0 <= count <= max_logprobs:
        raise bad_request("logprobs", f"logprobs {count} is not in 0 to {max_logprobs}")
    return _params(request, defaults, {"logprobs": count})


def _params(
    request: GenerationRequest, defaults: Mapping[str, Any], given: dict[str, Any]
) -> SamplingParams:
    """Merge: the model's own recommendations, then what the route says, then the request."""
    values = given | dict(defaults)
    if given.get("max_tokens") is not None:
        values["max_tokens"] = given["max_tokens"]
    for name in _SAME_NAME:
        value = getattr(request, name)
        if value is not None and not (name == "max_tokens" and given.get(name) is not None):
            values[name] = value
    values["logit_bias"] = _logit_bias(request.logit_bias or {})
    try:
        return SamplingParams(**values)
    except ParameterError as error:
        raise _renamed(error, request) from error


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError as error:
        raise bad_request("logit_bias", f"logit_bias: keys must be token ids; {error}") from error


def _renamed(error: ParameterError, request: GenerationRequest) -> ApiError:
    """Name the field that the client wrote."""
    param = error.param
    if param == "max_tokens" and getattr(request, "max_completion_tokens", None) is not None:
        param = "max_completion_tokens"
    return bad_request(param, str(error), "invalid_value")
