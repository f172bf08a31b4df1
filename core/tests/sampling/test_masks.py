"""Tokens that must not come: ends before min_tokens, and bad words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from infer_plugin_api.sampling import SamplingParams

if TYPE_CHECKING:
    from conftest import Harness

# Falling logits: greedy takes the lowest id that is allowed.
FALLING = -torch.arange(8, dtype=torch.float32)


def greedy(**options: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=50, **options)


def test_no_stop_id_comes_before_min_tokens_were_generated(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [5, 6], greedy(min_tokens=3), stop_ids=(0, 1))
    assert state.generate(FALLING, 0, 5) == [2, 2, 2, 0, 0]


def test_min_tokens_goes_on_counting_after_a_preemption(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [5, 6], greedy(min_tokens=3), stop_ids=(0,), generated=[1, 1])
    assert state.generate(FALLING, 0, 3) == [1, 0, 0]


def test_stop_ids_outside_the_vocabulary_are_harmless(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [5], greedy(min_tokens=2), stop_ids=(0, 8, 99_999_999))
    state.admit(1, [5], greedy())
    output = state.step(torch.stack([FALLING, FALLING]), [0, 1])
    assert output.token_ids.tolist() == [1, 0]


def test_sampled_rows_obey_masks_too(rows: Harness) -> None:
    state = rows(vocab_size=8)
    params = SamplingParams(temperature=5, max_tokens=50, min_tokens=50)
    state.admit(0, [5], params, stop_ids=(0, 1, 2, 3, 4, 5))
    assert set(state.generate(FALLING, 0, 50)) == {6, 7}


def test_single_token_bad_words_never_come(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [5], greedy(bad_words_token_ids=((0,), (1,))))
    assert state.generate(FALLING, 0, 3) == [2, 2, 2]


def test_a_longer_bad_word_is_stopped_at_its_last_token_only(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [5], greedy(bad_words_token_ids=((0, 0, 0),)))
    assert state.generate(FALLING, 0, 7) == [0, 0, 1, 0, 0, 1, 0]


def test_bad_words_of_several_lengths_and_with_one_last_token_do_not_disturb_each_other(
    rows: Harness,
) -> None:
    state = rows(vocab_size=8)
    words = ((0, 0), (1, 0), (2, 1, 0), (0, 1, 1))
    state.admit(0, [5], greedy(bad_words_token_ids=words))
    # 0, then no 0 (0 0), then no 0 (1 0) nor 1 (0 1 1), then free again.
    assert state.generate(FALLING, 0, 5) == [0, 1, 2, 0, 1]


def test_the_prompt_is_no_part_of_a_bad_word(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [3, 0], greedy(bad_words_token_ids=((0, 0), (3, 0, 0))))
    assert state.generate(FALLING, 0, 2) == [0, 1]


def test_a_bad_word_begun_before_a_preemption_is_stopped_after_it(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [3], greedy(bad_words_token_ids=((4, 0, 0),)), generated=[4, 0])
    assert state.generate(FALLING, 0, 2) == [1, 0]


def test_a_bad_word_with_an_id_outside_the_vocabulary_is_ignored(rows: Harness) -> None:
    state = rows(vocab_size=8)
    state.admit(0, [3], greedy(bad_words_token_ids=((99,), (0, 99), (99, 0), ())))
    assert state.generate(FALLING, 0, 2) == [0, 0]
