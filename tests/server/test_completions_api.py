"""/v1/completions: prompts, limits, penalties, log-probabilities."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Served, served, stream, streamed

SCRIPT = "ABCDEFGHIJKLMNOP"
HEAD, TAIL = math.log(0.75), math.log(0.25)


@pytest.mark.parametrize("prompt", ["x", [120], ["x", "yy"], [[120], [121, 121]]])
def test_a_prompt_is_a_text_or_ids_or_several(alphabet: Served, prompt: Any) -> None:
    answer = alphabet.complete(prompt).json()
    several = isinstance(prompt[0], (list, str)) and isinstance(prompt, list)
    assert [choice["text"] for choice in answer["choices"]] == [SCRIPT] * (1 + several)
    assert answer["usage"]["prompt_tokens"] == (3 if several else 1)
    assert answer["object"] == "text_completion"


def test_openais_client_gets_completions(alphabet: Served) -> None:
    answer = alphabet.openai().completions.create(
        model=alphabet.model, prompt="x", max_tokens=3, temperature=0
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ABCDEFG", "length")


def test_several_prompts_with_several_answers_keep_their_places(alphabet: Served) -> None:
    body = {"prompt": ["x", "y", "z"], "n": 2, "stream_options": {"include_usage": True}}
    answer = streamed(alphabet, body)
    assert {choice["index"] for choice in answer.choices} == set(range(6))
    for index in range(6):
        mine = [choice for choice in answer.choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in mine) == SCRIPT
        assert mine[-1]["finish_reason"] == "stop"
    assert answer.chunks[-1]["usage"]["prompt_tokens"] == 3
    assert answer.chunks[-1]["usage"]["completion_tokens"] == 6 * 8


def test_one_bad_prompt_among_good_ones_refuses_them_all(alphabet: Served) -> None:
    response = alphabet.complete([[120], [99999999]])
    assert response.status_code == 400
    assert alphabet.wait_idle()["infer_requests_running"] == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [5, 99999999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"logit_bias": {"99999999": 5}}, "logit_bias"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"stop_token_ids": [99999999], "min_tokens": 1}, "stop_token_ids"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_and_hurt_nobody(
    loop: Served, fields: dict[str, Any], param: str
) -> None:
    """API-09"""

    async def test() -> tuple[int, Any, str]:
        async with loop.async_http() as client:
            running = asyncio.create_task(stream(client, {"prompt": "x", "max_tokens": 200}))
            await asyncio.sleep(0.05)
            response = await client.post("/v1/completions", json={"prompt": "x"} | fields)
            return response.status_code, response.json(), (await running).text

    status, body, text = asyncio.run(test())
    assert (status, body["error"]["param"]) == (400, param)
    assert text == "one two three four " * 50


@pytest.mark.parametrize(
    ("prompt", "fields", "text"),
    [
        ("HHHH", {"presence_penalty": 1.5}, "HTHHHHHHHH"),
        ("HHHH", {"frequency_penalty": 0.6}, "HHTHTHTHTH"),
        ("H", {"repetition_penalty": 1.2}, "THHHHHHHHH"),
        ("x", {"repetition_penalty": 1.2}, "HTHHHHHHHH"),
    ],
)
def test_penalties_count_what_they_should(
    coin: Served, prompt: str, fields: dict[str, Any], text: str
) -> None:
    """API-17"""
    assert coin.text(prompt, max_tokens=10, **fields) == text


def test_completion_logprobs_have_the_older_shape(coin: Served) -> None:
    choice = coin.complete("x", logprobs=2, max_tokens=4).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["H"] * 4
    assert logprobs["token_logprobs"] == pytest.approx([HEAD] * 4, abs=1e-3)
    assert logprobs["text_offset"] == [0, 1, 2, 3]
    for top in logprobs["top_logprobs"]:
        assert top == pytest.approx({"H": HEAD, "T": TAIL}, abs=1e-3)


def test_offsets_count_characters_where_tokens_cut_them(emoji: Served) -> None:
    choice = emoji.complete("x", logprobs=0, max_tokens=20).json()["choices"][0]
    assert choice["text"] == "ok 🙂 café end"
    tokens = choice["logprobs"]["tokens"]
    assert tokens[1:3] == ["bytes:\\xf0\\x9f", "bytes:\\x99\\x82"]
    assert choice["logprobs"]["text_offset"] == [0, 3, 3, 4, 8, 8, 9]
    assert choice["logprobs"]["top_logprobs"] is None


def test_streamed_completion_logprobs_equal_the_whole_ones(emoji: Served) -> None:
    whole = emoji.complete("x", logprobs=1).json()["choices"][0]["logprobs"]
    parts = [c["logprobs"] for c in streamed(emoji, {"prompt": "x", "logprobs": 1}).choices]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [item for part in parts if part for item in part[name]] == whole[name]


def test_no_logprobs_come_unasked(coin: Served) -> None:
    assert coin.complete("x", max_tokens=2).json()["choices"][0]["logprobs"] is None


def test_min_tokens_holds_against_a_stop_string(alphabet: Served) -> None:
    """API-19"""
    answer = alphabet.complete("x", stop=["DEF"], min_tokens=4).json()
    assert answer["usage"]["completion_tokens"] >= 4


def test_min_tokens_holds_against_every_end_of_sequence_id(eosinside: Served) -> None:
    """API-19"""
    answer = eosinside.complete("x", min_tokens=5, max_tokens=8, logprobs=0).json()
    assert answer["usage"]["completion_tokens"] >= 5
    tokens = answer["choices"][0]["logprobs"]["tokens"][:5]
    assert not {"<|turn_end|>", "<|endoftext|>"} & set(tokens)


def test_every_end_of_sequence_id_ends_an_answer(eosinside: Served) -> None:
    """LOAD-07 (a)"""
    choice = eosinside.complete("x").json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("yes no done", "stop")
    assert choice["stop_reason"] is None


def test_ignore_eos_covers_every_end_of_sequence_id(eosinside: Served) -> None:
    """LOAD-07 (c)"""
    answer = eosinside.complete("x", ignore_eos=True, max_tokens=6).json()
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"][0]["finish_reason"] == "length"


def test_overriding_sampling_defaults_keeps_the_end_of_sequence_ids(
    models: Callable[[str], Path],
) -> None:
    """LOAD-07 (b)"""
    override = '{"temperature": 0}'
    with served(models("eosinside"), "--override-generation-config", override) as server:
        choice = server.complete("x", temperature=None).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("yes no done", "stop")


def test_a_stop_id_is_the_stop_reason(alphabet: Served) -> None:
    token = alphabet.complete("x", max_tokens=1).json()
    assert token["choices"][0]["text"] == "ABC"
    choice = alphabet.complete("x", stop_token_ids=[262]).json()["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == ("ABCDEFG", 262)
    assert alphabet.complete("x", stop=["HI"]).json()["choices"][0]["stop_reason"] == "HI"


@pytest.fixture(scope="module")
def short(models: Callable[[str], Path]) -> Any:
    """``loop`` with room for 16 tokens in all."""
    with served(models("loop"), "--max-model-len", "16") as server:
        yield server


@pytest.mark.parametrize("length", [14, 15])
@pytest.mark.parametrize("limit", [None, 1])
def test_an_answer_ends_at_the_models_length(short: Served, length: int, limit: int | None) -> None:
    """SCH-05"""
    answer = short.complete([120] * length, max_tokens=limit).json()
    assert answer["usage"]["completion_tokens"] == min(16 - length, limit or 16)
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("length", [16, 17, 500])
def test_a_prompt_that_leaves_no_room_is_refused(short: Served, length: int) -> None:
    """SCH-05"""
    response = short.complete([120] * length, max_tokens=1)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert str(length) in response.json()["error"]["message"]


def test_prompts_at_block_edges_answer_the_same_from_the_cache(
    models: Callable[[str], Path],
) -> None:
    """PFX-05: block size 16, room for about 20 blocks"""
    lengths = (15, 16, 17, 31, 32, 33)
    flags = ("--block-size", "16", "--kv-cache-memory-bytes", str(20 * 16 * 768))

    def ask(server: Served, length: int) -> tuple[Any, int]:
        prompt = [(length * 7 + i * i) % 256 for i in range(length)]
        answer = server.complete(prompt, max_tokens=8, logprobs=1, ignore_eos=True).json()
        choice = answer["choices"][0]
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return (choice["text"], choice["logprobs"]["token_logprobs"]), cached

    with served(models("tiny"), *flags, "--dtype", "float32") as server:
        first = {length: ask(server, length) for length in lengths}
        second = {length: ask(server, length) for length in lengths}
        for number in range(200):
            server.text([number, *[(number + i) % 256 for i in range(20)]], max_tokens=1)
        third = {length: ask(server, length) for length in lengths}
    for length in lengths:
        (text, logprobs), _ = first[length]
        for (other_text, other_logprobs), cached in (second[length], third[length]):
            assert other_text == text
            assert other_logprobs == pytest.approx(logprobs, abs=1e-4)
            assert cached <= length - 1
            assert cached % 16 == 0
    assert any(cached for _, cached in second.values())
