"""Text from streamed ids: nothing lost, nothing broken, at the same cost however long it gets."""

from __future__ import annotations

import functools
import random
import statistics
import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from infer.text.detokenizer import IncrementalDetokenizer
from infer.text.tokenizer import Tokenizer

shared_tokenizer = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100
)


@functools.cache
def known_bytes(tokenizer: Tokenizer) -> frozenset[int]:
    tokens = map(tokenizer.token_bytes, range(tokenizer.vocab_size))
    return frozenset(token[0] for token in tokens if len(token) == 1)


def deltas(tokenizer: Tokenizer, ids: list[int], *, skip_special_tokens: bool = True) -> list[str]:
    stream = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    return [*(stream.push([token]) for token in ids), stream.finish()]


@shared_tokenizer
@given(data=st.data(), skip=st.booleans())
def test_joined_deltas_are_the_text_of_all_ids(
    any_tokenizer: Tokenizer, data: st.DataObject, skip: bool
) -> None:
    """As they continue a text; only at its very beginning decode drops the encoder's own space."""
    first = any_tokenizer.encode("x", add_special_tokens=False)
    ids = data.draw(st.lists(st.integers(0, any_tokenizer.vocab_size - 1), max_size=40))
    whole = any_tokenizer.decode([*first, *ids], skip_special_tokens=skip)
    joined = "".join(deltas(any_tokenizer, ids, skip_special_tokens=skip))
    assert "x" + joined == whole


@shared_tokenizer
@given(text=st.text(max_size=60))
def test_any_text_comes_back_from_its_ids(any_tokenizer: Tokenizer, text: str) -> None:
    """As far as the vocabulary has its bytes: SmolLM2's lacks some control characters."""
    assume(known_bytes(any_tokenizer).issuperset(text.encode()))
    ids = any_tokenizer.encode(text, add_special_tokens=False)
    joined = "".join(deltas(any_tokenizer, ids, skip_special_tokens=False))
    assert any_tokenizer.decode(ids, skip_special_tokens=False) == text
    assert joined in (text, f" {text}")


@shared_tokenizer
@given(text=st.text(alphabet="🙂👩🏽‍🚀é漢字a ️", min_size=1, max_size=12))
def test_no_delta_shows_a_broken_character(any_tokenizer: Tokenizer, text: str) -> None:
    ids = any_tokenizer.encode(text, add_special_tokens=False)
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in deltas(any_tokenizer, ids))


def test_a_character_cut_over_tokens_appears_when_it_is_whole(chain_tokenizer: Tokenizer) -> None:
    """The script of the chain model `emoji`, token by token."""
    ids = [260, 261, 262, 263, 0xC3, 0xA9, 264]
    pieces = deltas(chain_tokenizer, ids)
    assert pieces == ["ok ", "", "🙂", " caf", "", "é", " end", ""]


def test_an_unfinished_character_at_the_end_becomes_one_replacement(
    chain_tokenizer: Tokenizer,
) -> None:
    assert deltas(chain_tokenizer, [260, 261]) == ["ok ", "", "\N{REPLACEMENT CHARACTER}"]


def test_special_tokens_are_shown_only_when_asked_for(smollm2_tokenizer: Tokenizer) -> None:
    ids = smollm2_tokenizer.encode("a<|im_end|>b")
    assert "".join(deltas(smollm2_tokenizer, ids)) == "ab"
    assert "".join(deltas(smollm2_tokenizer, ids, skip_special_tokens=False)) == "a<|im_end|>b"


def test_an_id_outside_the_vocabulary_has_no_text(smollm2_tokenizer: Tokenizer) -> None:
    assert deltas(smollm2_tokenizer, [10**6, -1]) == ["", "", ""]


@pytest.mark.timeout(60)
def test_a_token_costs_the_same_however_long_the_text_is(smollm2_tokenizer: Tokenizer) -> None:
    draw = random.Random(0)
    ids = [draw.randrange(smollm2_tokenizer.vocab_size) for _ in range(60_000)]
    stream = IncrementalDetokenizer(smollm2_tokenizer)
    seconds = []
    for begin in range(0, len(ids), 1000):
        started = time.perf_counter()
        for token in ids[begin : begin + 1000]:
            stream.push([token])
        seconds.append(time.perf_counter() - started)
    assert statistics.median(seconds[-20:]) < 4 * statistics.median(seconds[:20])
