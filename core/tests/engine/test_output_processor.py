"""Sampled ids become deltas; stop strings, hidden stop ids and broken characters on the way."""

from __future__ import annotations

from typing import Any

import pytest

from infer.engine.input_processor import InputProcessor
from infer.engine.messages import TokenOutput
from infer.engine.output_processor import AnswerStream
from infer.engine.outputs import Delta
from infer_plugin_api.execution import TokenLogprobs
from infer_plugin_api.sampling import SamplingParams

END_OF_TEXT = 256


class Answer:
    """A stream that is fed text, a token a byte."""

    def __init__(self, inputs: InputProcessor, **params: Any) -> None:
        prepared = inputs.prepare("hi", SamplingParams(**params))
        self.stream = AnswerStream(inputs.tokenizer, prepared, 0)

    def push(self, text: str | list[int], **fields: Any) -> Delta | None:
        ids = text if isinstance(text, list) else list(text.encode())
        return self.stream.push(TokenOutput(self.stream.request_id, ids, **fields))


def test_text_grows_and_usage_is_counted(inputs: InputProcessor) -> None:
    answer = Answer(inputs)
    first = answer.push("ab", num_cached_tokens=1, first_scheduled=2.5)
    assert first is not None
    assert (first.text, first.token_ids, first.num_output_tokens) == ("ab", [97, 98], 2)
    assert (first.num_prompt_tokens, first.num_cached_tokens) == (2, 1)
    assert first.first_scheduled == 2.5
    last = answer.push("c", finish_reason="length")
    assert last is not None
    assert (last.text, last.finish_reason, last.num_output_tokens) == ("c", "length", 3)
    assert answer.push("d") is None, "news after the end are ignored"


def test_a_character_is_shown_when_it_is_whole(inputs: InputProcessor) -> None:
    answer = Answer(inputs)
    begin, end = answer.push([0xC3]), answer.push([0xA9])
    assert begin is not None
    assert end is not None
    assert (begin.text, end.text) == ("", "é")
    assert begin.token_ids == [0xC3], "ids are not held back"


def test_a_character_that_never_completes_is_shown_as_broken(inputs: InputProcessor) -> None:
    answer = Answer(inputs)
    answer.push([0xC3])
    last = answer.push([], finish_reason="length")
    assert last is not None
    assert last.text == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("include", "text"), [(False, ""), (True, "STOP")])
def test_a_stop_string_over_several_tokens_ends_the_answer_here(
    inputs: InputProcessor, include: bool, text: str
) -> None:
    answer = Answer(inputs, stop=["STOP"], include_stop_str_in_output=include)
    shown = [delta for char in "xST" if (delta := answer.push(char))]
    last = answer.push("OPyz")
    assert last is not None
    assert "".join(delta.text for delta in [*shown, last]) == "x" + text
    assert (last.finish_reason, last.stop_reason) == ("stop", "STOP")
    assert last.token_ids == list(b"OP"), "ids after the stop string are not the caller's"
    assert answer.stream.stopped_here, "the engine does not know yet"


def test_a_stop_string_in_the_last_news_needs_no_abort(inputs: InputProcessor) -> None:
    answer = Answer(inputs, stop=["b"])
    last = answer.push("ab", finish_reason="length")
    assert last is not None
    assert (last.text, last.finish_reason, last.stop_reason) == ("a", "stop", "b")
    assert not answer.stream.stopped_here


def test_what_might_have_become_a_stop_string_is_shown_at_the_end(inputs: InputProcessor) -> None:
    answer = Answer(inputs, stop=["abc"])
    held = answer.push("ab")
    assert held is not None
    assert held.text == ""
    last = answer.push([], finish_reason="length")
    assert last is not None
    assert last.text == "ab"


def test_stop_strings_wait_for_min_tokens(inputs: InputProcessor) -> None:
    answer = Answer(inputs, stop=["a"], min_tokens=3)
    first = answer.push("aab")
    assert first is not None
    assert (first.text, first.finish_reason) == ("aab", None)
    last = answer.push("a")
    assert last is not None
    assert last.finish_reason == "stop"


@pytest.mark.parametrize(("include", "text"), [(False, "a"), (True, "ab")])
def test_a_stop_id_is_hidden_unless_asked_for(
    inputs: InputProcessor, include: bool, text: str
) -> None:
    answer = Answer(inputs, stop_token_ids=(98,), include_stop_str_in_output=include)
    last = answer.push("ab", finish_reason="stop", stop_reason=98)
    assert last is not None
    assert (last.text, last.stop_reason, last.token_ids) == (text, 98, [97, 98])


def test_the_end_token_is_hidden(inputs: InputProcessor) -> None:
    last = Answer(inputs).push([97, END_OF_TEXT], finish_reason="stop")
    assert last is not None
    assert last.text == "a"
    assert last.num_output_tokens == 2


def test_log_probabilities_come_with_text_and_bytes(inputs: InputProcessor) -> None:
    entry = TokenLogprobs(logprob=-0.5, rank=2, top_ids=[98, 0xC3], top_logprobs=[-0.1, -2.0])
    delta = Answer(inputs, logprobs=2).push("a", logprobs=[entry])
    assert delta is not None
    assert delta.logprobs is not None
    found = delta.logprobs[0]
    assert (found.token_id, found.text, found.logprob, found.rank) == (97, "a", -0.5, 2)
    assert [(top.token_id, top.rank, top.bytes) for top in found.top] == [
        (98, 1, b"b"),
        (0xC3, 2, b"\xc3"),
    ]
    assert Answer(inputs).push("a", logprobs=[entry]).logprobs is None  # type: ignore[union-attr]
