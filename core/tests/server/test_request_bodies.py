"""Bodies: what is read, what is refused, and how the answer names the fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from infer.server.body import read_json
from infer.server.errors import ApiError, ClientGoneError
from infer.server.parameters import chat_params, completion_params
from infer.server.requests import (
    ChatRequest,
    CompletionRequest,
    check_messages,
    check_request,
    prompts_of,
)

LIMIT = 1_000_000
HELLO = [{"role": "user", "content": "Hi"}]


def read(chunks: Iterable[bytes], kind: Any = ChatRequest, **headers: str) -> Any:
    """Read a body that comes in *chunks*, then a disconnect."""
    parts = list(chunks)
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": place < len(parts) - 1}
        for place, part in enumerate(parts)
    ]

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return asyncio.run(read_json({"type": "http", "headers": raw}, receive, LIMIT, kind))


def refused(*args: Any, **kwargs: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(*args, **kwargs)
    return caught.value


def test_a_body_may_come_in_parts() -> None:
    assert read([b'{"mod', b'el": "M"}']).model == "M"


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b'"x"', b'{"messages":', b"\xff\xfe{", b"", b'{"n": 1, "n"', b"{} {}"],
)
def test_a_malformed_body_is_a_400_in_openais_shape(body: bytes) -> None:
    error = refused([body])
    assert error.status == 400
    shape = json.loads(error.body())["error"]
    assert set(shape) == {"message", "type", "param", "code"}
    assert shape["message"]
    assert shape["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": "two"}, "n"),
        ({"n": True}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": [1]}, "stop[0]"),
        ({"messages": [1]}, "messages[0]"),
        ({"stream_options": {"include_usage": 3}}, "stream_options.include_usage"),
        ({"logit_bias": {"5": "much"}}, "logit_bias[...]"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(body: dict[str, Any], param: str) -> None:
    error = refused([json.dumps(body).encode()])
    assert (error.status, error.param) == (400, param)
    assert str(error).startswith(param)


@pytest.mark.parametrize("field", ["unknown", "messages", "tools"])
def test_json_nested_without_end_is_a_400(field: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    error = refused([b'{"%s": ' % field.encode() + deep + b"}"])
    assert error.status == 400


def test_a_body_above_the_limit_is_a_413_by_its_length_alone() -> None:
    assert refused([b"{}"], content_length=str(LIMIT + 1)).status == 413


def test_a_body_above_the_limit_is_a_413_without_a_length() -> None:
    error = refused([b"x" * 600_000] * 2)
    assert error.status == 413
    assert error.headers["Connection"] == "close"


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "gzip, identity"])
def test_compressed_bodies_are_a_415(encoding: str) -> None:
    assert refused([b"{}"], content_encoding=encoding).status == 415


def test_types_that_a_web_page_could_send_unasked_are_a_415() -> None:
    assert refused([b"{}"], content_type="text/plain").status == 415
    assert read([b"{}"], content_type="application/json; charset=utf-8") == ChatRequest()


def test_a_client_that_leaves_in_its_body_gets_no_answer() -> None:
    with pytest.raises(ClientGoneError):
        read([])


def test_null_and_default_fields_mean_the_same_as_none_at_all() -> None:
    body = json.loads(
        """{"messages": [{"role": "user", "content": "Hi"}], "stop": null, "logit_bias": {},
        "logprobs": false, "top_logprobs": null, "n": null, "seed": null, "user": null,
        "stream_options": null, "response_format": null, "tools": null, "tool_choice": null,
        "presence_penalty": null, "top_p": null, "functions": [], "function_call": "none",
        "stream": false, "echo": false, "best_of": null, "response_format": {"type": "text"}}"""
    )
    request = msgspec.convert(body, ChatRequest)
    check_request(request)
    plain = ChatRequest(messages=HELLO)
    assert chat_params(request, {}, 20) == chat_params(plain, {}, 20)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("functions", [{"name": "f"}]),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "schema": {}}),
        ("guided_json", {"type": "object"}),
        ("guided_regex", "a+"),
        ("structured_outputs", {"choice": ["a"]}),
        ("use_beam_search", True),
        ("prompt_logprobs", 0),
        ("skip_special_tokens", False),
        ("truncate_prompt_tokens", 5),
        ("modalities", ["text", "audio"]),
        ("chat_template", "{{ messages }}"),
        ("continue_final_message", True),
        ("best_of", 2),
    ],
)
def test_a_feature_that_does_not_exist_yet_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ApiError) as caught:
        check_request(msgspec.convert({"messages": HELLO, name: value}, ChatRequest))
    assert (caught.value.status, caught.value.param) == (400, name)
    assert "support" in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("echo", True), ("suffix", "end")])
def test_completions_without_echo_and_suffix_say_so(name: str, value: Any) -> None:
    with pytest.raises(ApiError) as caught:
        check_request(msgspec.convert({"prompt": "x", name: value}, CompletionRequest))
    assert caught.value.param == name


def test_best_of_may_equal_n_but_not_be_below_it() -> None:
    check_request(CompletionRequest(n=3, best_of=3))
    with pytest.raises(ApiError, match="at least n"):
        check_request(CompletionRequest(n=3, best_of=2))


def test_stream_options_need_a_stream() -> None:
    request = msgspec.convert({"stream_options": {"include_usage": True}}, ChatRequest)
    with pytest.raises(ApiError) as caught:
        check_request(request)
    assert caught.value.param == "stream_options"


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("text", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2), ("", 1), ([-1], 1)],
)
def test_prompts_come_in_four_forms(prompt: Any, count: int) -> None:
    assert len(prompts_of(CompletionRequest(prompt=prompt))) == count


@pytest.mark.parametrize("prompt", [None, [], [1, "a"], [True], [["a"]], [{}], [1.5], ["a"] * 2000])
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ApiError) as caught:
        prompts_of(CompletionRequest(prompt=prompt))
    assert caught.value.param == "prompt"


def test_prompts_times_n_is_limited() -> None:
    with pytest.raises(ApiError, match="at most"):
        prompts_of(CompletionRequest(prompt=["a"] * 100, n=20))


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": {"x": 1}}] * 5000, "messages[0].content"),
        ([*HELLO, {"role": "tool", "content": "x"}], "messages[1].role"),
        (
            [{"role": "assistant", "content": "x", "tool_calls": [{}]}],
            "messages[0].tool_calls",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
            "messages[0].content[1].type",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0].type"),
    ],
)
def test_messages_that_cannot_be_used_are_named(messages: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_messages(messages)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert len(caught.value.body()) < 20_000


def test_an_error_never_quotes_a_whole_book() -> None:
    assert len(ApiError(400, "x" * 1_000_000).body()) < 20_000


def test_the_request_goes_before_the_models_recommendations() -> None:
    defaults = {"temperature": 0.6, "top_k": 20, "max_tokens": 7}
    params = chat_params(ChatRequest(temperature=0.0), defaults, 20)
    assert (params.temperature, params.top_k, params.max_tokens) == (0.0, 20, 7)


def test_a_chat_has_no_token_limit_of_its_own_and_a_completion_has_16() -> None:
    assert chat_params(ChatRequest(), {}, 20).max_tokens is None
    assert completion_params(CompletionRequest(), {}, 20).max_tokens == 16


def test_max_completion_tokens_goes_before_max_tokens() -> None:
    request = ChatRequest(max_tokens=9, max_completion_tokens=5)
    assert chat_params(request, {}, 20).max_tokens == 5
    with pytest.raises(ApiError) as caught:
        chat_params(ChatRequest(max_completion_tokens=0), {}, 20)
    assert caught.value.param == "max_completion_tokens"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [({}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3)],
)
def test_chat_logprobs_count_alternatives(fields: dict[str, Any], wanted: int | None) -> None:
    assert chat_params(ChatRequest(**fields), {}, 20).logprobs == wanted


@pytest.mark.parametrize(
    "fields",
    [
        {"top_logprobs": 2},
        {"logprobs": True, "top_logprobs": 21},
        {"logprobs": True, "top_logprobs": -1},
    ],
)
def test_alternatives_without_logprobs_or_above_the_limit_are_refused(fields: Any) -> None:
    with pytest.raises(ApiError) as caught:
        chat_params(ChatRequest(**fields), {}, 20)
    assert caught.value.param == "top_logprobs"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 1_000_000}, "n"),
        ({"n": -1}, "n"),
        ({"logprobs": 10_000}, "logprobs"),
        ({"stop": [str(i) for i in range(100_000)]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["", "K"]}, "stop"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"logit_bias": {"5": 1e9}}, "logit_bias"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 20}, "min_tokens"),
        ({"seed": 10**30}, "seed"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ],
)
def test_values_out_of_range_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        completion_params(CompletionRequest(**fields), {}, 20)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert len(caught.value.body()) < 20_000
