"""/v1/chat/completions, asked by OpenAI's client and over raw HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.server.running import Served, streamed

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hi"}]
SCRIPT = "ABCDEFGHIJKLMNOP"


def test_openais_client_gets_an_answer(alphabet: Served) -> None:
    answer = alphabet.openai().chat.completions.create(
        model=alphabet.model, messages=[{"role": "user", "content": "Hi"}], temperature=0
    )
    assert answer.choices[0].message.content == SCRIPT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_openais_client_gets_a_stream(alphabet: Served) -> None:
    chunks = alphabet.openai().chat.completions.create(
        model=alphabet.model,
        messages=[{"role": "user", "content": "Hi"}],
        temperature=0,
        stream=True,
    )
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == SCRIPT
    assert [c.finish_reason for c in choices if c.finish_reason] == ["stop"]
    assert len(choices) >= 8


def test_a_client_that_sends_every_field_at_its_default_gets_the_same_answer(
    alphabet: Served,
) -> None:
    """API-01"""
    plain = {"model": alphabet.model, "messages": HELLO, "temperature": 0, "max_tokens": 8}
    defaults: dict[str, Any] = dict.fromkeys(
        [
            "stop",
            "top_logprobs",
            "n",
            "seed",
            "user",
            "stream_options",
            "response_format",
            "tools",
            "tool_choice",
            "presence_penalty",
            "top_p",
        ]
    )
    with_defaults = plain | defaults | {"logit_bias": {}, "logprobs": False}
    first, second = (alphabet.post(CHAT, body).json() for body in (plain, with_defaults))
    assert first["choices"] == second["choices"]
    for count in ("prompt_tokens", "completion_tokens"):
        assert first["usage"][count] == second["usage"][count]


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"stop": ["NOPQ"], "max_tokens": 20}, SCRIPT, "stop"),
        ({"stop": ["EFX"], "max_tokens": 2}, "ABCDEF", "length"),
        ({"stop": ["HIJ"], "max_tokens": 20}, "ABCDEFG", "stop"),
        ({"stop": "J", "include_stop_str_in_output": True}, "ABCDEFGHIJ", "stop"),
    ],
)
def test_text_held_back_for_a_stop_string_comes_at_the_end(
    alphabet: Served, fields: dict[str, Any], text: str, reason: str
) -> None:
    """API-03"""
    choice = alphabet.chat(**fields).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, reason)
    stream = streamed(alphabet, {"messages": HELLO, **fields}, CHAT)
    assert (stream.text, stream.finish_reason, stream.done) == (text, reason, True)


def test_usage_comes_in_one_last_chunk_when_it_was_asked_for(alphabet: Served) -> None:
    """API-05"""
    body = {"messages": HELLO, "stream_options": {"include_usage": True}}
    stream = streamed(alphabet, body, CHAT)
    *with_choices, last = stream.chunks
    assert all(chunk["choices"] and chunk["usage"] is None for chunk in with_choices)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert stream.done


def test_no_usage_and_no_empty_chunk_come_unasked(alphabet: Served) -> None:
    """API-05"""
    stream = streamed(alphabet, {"messages": HELLO, "stream_options": None}, CHAT)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in stream.chunks)


def test_stream_options_without_a_stream_are_refused(alphabet: Served) -> None:
    """API-05"""
    response = alphabet.chat(stream=False, stream_options={"include_usage": True})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stream_options"


def test_chat_logprobs_have_one_entry_a_token_with_exact_bytes(emoji: Served) -> None:
    """API-07"""
    choice = emoji.chat(logprobs=True, max_tokens=20).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert choice["message"]["content"] == "ok 🙂 café end"
    assert [entry["bytes"] for entry in entries[1:3]] == [[240, 159], [153, 130]]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "ok 🙂 café end"
    for entry in entries:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["top_logprobs"] == []
        assert entry["logprob"] == pytest.approx(0, abs=1e-3)
    assert not {"text_offset", "token_logprobs"} & set(choice["logprobs"])


def test_chat_logprobs_with_alternatives_have_the_chosen_one_first(emoji: Served) -> None:
    """API-07"""
    choice = emoji.chat(logprobs=True, top_logprobs=2, max_tokens=20).json()["choices"][0]
    for entry in choice["logprobs"]["content"]:
        assert len(entry["top_logprobs"]) == 2
        assert entry["top_logprobs"][0]["bytes"] == entry["bytes"]


def test_streamed_logprobs_equal_the_whole_ones(emoji: Served) -> None:
    body = {"messages": HELLO, "logprobs": True, "top_logprobs": 1}
    stream = streamed(emoji, body, CHAT)
    parts = [choice["logprobs"]["content"] for choice in stream.choices if choice["logprobs"]]
    whole = emoji.chat(logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]
    assert [entry for part in parts for entry in part] == whole["content"]
    assert stream.text == "ok 🙂 café end"


@pytest.mark.parametrize("fields", [{"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}])
def test_alternatives_alone_or_too_many_are_refused(emoji: Served, fields: dict[str, Any]) -> None:
    """API-07"""
    response = emoji.chat(**fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "top_logprobs"


@pytest.mark.parametrize("stop", ["", ["", "K"]])
def test_an_empty_stop_string_never_gives_an_empty_answer(alphabet: Served, stop: Any) -> None:
    """API-13"""
    response = alphabet.chat(stop=stop)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stop"


def test_several_answers_come_streamed_and_whole(alphabet: Served) -> None:
    choices = alphabet.chat(n=3).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in choices} == {SCRIPT}
    stream = streamed(alphabet, {"messages": HELLO, "n": 3}, CHAT)
    for index in range(3):
        mine = [choice["delta"] for choice in stream.choices if choice["index"] == index]
        assert mine[0]["role"] == "assistant"
        assert "".join(delta.get("content", "") for delta in mine) == SCRIPT


def test_several_answers_count_their_prompt_once(alphabet: Served) -> None:
    one, three = alphabet.chat().json()["usage"], alphabet.chat(n=3).json()["usage"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"]


def test_an_unknown_model_is_a_404(alphabet: Served) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        alphabet.openai().chat.completions.create(
            model="nope", messages=[{"role": "user", "content": "Hi"}]
        )
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_the_model_list_names_what_is_served(alphabet: Served) -> None:
    (model,) = alphabet.openai().models.list().data
    assert model.id == alphabet.model
    assert alphabet.openai().models.retrieve(model.id).id == model.id
    assert alphabet.get("/v1/models/nope").status_code == 404


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"logits_processors": ["nope"]}, "logits_processors"),
    ],
)
def test_what_is_not_there_yet_is_refused_by_name(
    alphabet: Served, fields: dict[str, Any], param: str
) -> None:
    response = alphabet.chat(**fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_template_arguments_reach_the_template_but_cannot_replace_the_messages(
    alphabet: Served,
) -> None:
    assert alphabet.chat(chat_template_kwargs={"enable_thinking": False}).status_code == 200
    response = alphabet.chat(chat_template_kwargs={"messages": []})
    assert response.status_code == 400


def test_text_parts_are_one_text(alphabet: Served) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    body = {"messages": [{"role": "user", "content": parts}], "temperature": 0}
    whole = alphabet.chat("Hi").json()
    assert alphabet.post(CHAT, body).json()["usage"] == whole["usage"] | {
        "prompt_tokens_details": alphabet.post(CHAT, body).json()["usage"]["prompt_tokens_details"]
    }


def test_the_clients_request_id_comes_back(alphabet: Served) -> None:
    with alphabet.http() as client:
        response = client.post(CHAT, json={"messages": HELLO}, headers={"X-Request-Id": "mine"})
        assert response.headers["x-request-id"] == "mine"
        assert client.post(CHAT, json={"messages": HELLO}).headers["x-request-id"]


def test_a_real_model_gives_a_sensible_streamed_answer(smollm2: Served) -> None:
    chunks = smollm2.openai().chat.completions.create(
        model=smollm2.model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in chunks:
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert "Paris" in text
    assert usage is not None
    assert usage.completion_tokens <= 40


def test_a_prompt_asked_twice_is_found_in_the_cache(smollm2: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me of the sea. " * 20}], "max_tokens": 2}
    first, second = (smollm2.post(CHAT, body).json()["usage"] for _ in range(2))
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] < cached
    assert 0 < cached < second["prompt_tokens"]


def test_a_salt_separates_cache_entries(smollm2: Served) -> None:
    text = "Tell me of the mountains. " * 20
    for salt in ("a", "b"):
        usage = smollm2.chat(text, cache_salt=salt, max_tokens=1).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_temperature_just_above_zero_is_greedy(
    smollm2: Served, smollm2_bfloat16: Served, dtype: str
) -> None:
    """API-11"""
    server = smollm2 if dtype == "float32" else smollm2_bfloat16
    texts = {
        server.text("The sea is", temperature=temperature, max_tokens=32)
        for temperature in (0, 1e-7, 1e-30)
    }
    assert len(texts) == 1


def test_every_answer_says_its_type(alphabet: Served) -> None:
    with alphabet.http() as client:
        whole: httpx.Response = client.post(CHAT, json={"messages": HELLO})
        stream = client.post(CHAT, json={"messages": HELLO, "stream": True})
    assert whole.headers["content-type"] == "application/json"
    assert stream.headers["content-type"].startswith("text/event-stream")
