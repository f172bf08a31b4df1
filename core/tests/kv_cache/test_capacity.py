"""How much a pool holds."""

from __future__ import annotations

import pytest

from infer.kv_cache.capacity import blocks_needed, max_model_len_that_fits


def blocks_touched(first: int, last: int, block_size: int) -> int:
    return last // block_size - first // block_size + 1


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 16, 17])
@pytest.mark.parametrize("chunk", [1, 2, 7, 16])
def test_a_sliding_group_needs_what_its_window_and_chunk_can_touch(
    groups_of, block_size, window, chunk
):
    most = max(
        blocks_touched(max(0, start - window + 1), start + chunk - 1, block_size)
        for start in range(100)
    )
    assert blocks_needed(groups_of(window), block_size, 1000, chunk) == most


def test_full_groups_need_every_block(groups_of):
    assert blocks_needed(groups_of(None), 16, 33) == 3
    assert blocks_needed(groups_of(None, None), 16, 32) == 4


@pytest.mark.parametrize("num_blocks", [1, 2, 7, 40])
def test_the_longest_request_that_fits_fits_and_the_next_does_not(groups_of, num_blocks):
    for groups in (groups_of(None), groups_of(None, 6), groups_of(None, None)):
        longest = max_model_len_that_fits(groups, num_blocks, 4, 10_000)
        assert longest == 1 or blocks_needed(groups, 4, longest - 1) <= num_blocks
        assert blocks_needed(groups, 4, longest) > num_blocks


def test_a_pool_for_256_tokens_holds_257_because_the_last_is_never_computed(groups_of):
    assert max_model_len_that_fits(groups_of(None), 16, 16, 2048) == 257


def test_sliding_groups_alone_fit_any_length(groups_of):
    assert max_model_len_that_fits(groups_of(32), 3, 16, 100_000) == 100_000
