"""Block tables and the prefix cache, without a scheduler."""

from __future__ import annotations

import pytest

from infer.kv_cache.eviction import EvictionPolicy
from infer.kv_cache.manager import KVCacheManager
from infer.kv_cache.pool import CacheCorruptError
from infer.kv_cache.tables import NO_BLOCK


def cached_tokens(cache, ids, salt=""):
    return cache.match(cache.chain(salt), ids).num_tokens


def test_a_match_takes_nothing(make_cache, compute):
    cache = make_cache()
    cache.close(compute(cache, list(range(12))), 0)
    match = cache.match(cache.chain(""), list(range(13)))
    assert match.num_tokens == 12
    assert cache.num_used == 0
    assert cache.idle(match) == 3


def test_an_opened_match_owns_its_blocks_with_others(make_cache, compute):
    cache = make_cache()
    first = compute(cache, list(range(12)))
    second = compute(cache, [*range(8), 50, 51])
    assert second.blocks[0][:2] == first.blocks[0][:2]
    assert cache.num_used == 4
    cache.close(first, 0)
    assert cache.num_used == 3
    cache.close(second, 0)
    cache.check()
    assert cache.num_used == 0


def test_the_end_of_a_prompt_is_forgotten_before_its_beginning(make_cache, compute):
    cache = make_cache(num_blocks=4)
    cache.close(compute(cache, list(range(16))), 0)
    other = compute(cache, [90, 91, 92, 93, 94])
    assert cached_tokens(cache, list(range(17))) == 8
    cache.close(other, 0)


def test_a_recycled_block_does_not_keep_its_old_name(make_cache, compute):
    cache = make_cache(num_blocks=2)
    cache.close(compute(cache, [1, 1, 1, 1, 1, 1, 1, 1]), 0)
    cache.close(compute(cache, [2, 2, 2, 2, 2, 2, 2, 2]), 0)
    assert cached_tokens(cache, [1] * 9) == 0
    assert cached_tokens(cache, [2] * 9) == 8


def test_a_block_is_named_only_as_far_as_it_is_computed(make_cache):
    cache = make_cache()
    chain = cache.chain("")
    ids = list(range(10))
    tables = cache.open(cache.match(chain, ids), 10)
    cache.extend(tables, 10)
    cache.commit(tables, chain, ids, 7)
    assert cache.num_cached == 1
    cache.commit(tables, chain, ids, 8)
    assert cache.num_cached == 2
    cache.close(tables, 0)


def test_placeholder_ids_cannot_be_named(make_cache):
    cache = make_cache()
    chain = cache.chain("")
    tables = cache.open(cache.match(chain, [1, 2]), 10)
    cache.extend(tables, 8)
    with pytest.raises(ValueError, match="need more than 7 ids"):
        cache.commit(tables, chain, [1] * 7, 8)


def test_full_and_sliding_groups_match_what_both_hold(make_cache, compute):
    cache = make_cache(None, 5, num_blocks=40)
    ids = list(range(24))
    tables = compute(cache, ids)
    cache.slide(tables, 24, 0)
    assert tables.blocks[1][:5] == [NO_BLOCK] * 5
    cache.close(tables, 0)
    match = cache.match(cache.chain(""), [*ids, 99])
    assert match.num_tokens == 24
    assert match.blocks[1][:5] == [NO_BLOCK] * 5
    assert NO_BLOCK not in match.blocks[0]


def test_a_prefix_whose_window_was_evicted_is_cut_to_where_both_are_whole(make_cache):
    cache = make_cache(None, 5, num_blocks=40)
    ids = list(range(24))
    chain = cache.chain("")
    tables = cache.open(cache.match(chain, ids), 24)
    cache.extend(tables, 24)
    cache.commit(tables, chain, ids, 12)
    cache.slide(tables, 24, 0)
    tables.named = 6
    cache.close(tables, 0)
    assert cached_tokens(cache, ids) == 12
    cache.check()


def test_a_window_of_one_token_needs_no_earlier_block(make_cache, compute):
    cache = make_cache(1, num_blocks=8)
    tables = compute(cache, list(range(8)))
    cache.slide(tables, 8, 0)
    assert tables.num_blocks == 0
    cache.close(tables, 0)
    assert cached_tokens(cache, list(range(9))) == 8


def test_blocks_wait_for_the_last_step_that_names_them(make_cache, compute):
    cache = make_cache(caching=False)
    tables = compute(cache, list(range(12)))
    cache.close(tables, last_step=2)
    assert (cache.num_used, cache.num_leaving) == (3, 3)
    cache.retire(1)
    assert cache.num_used == 3
    cache.retire(2)
    assert (cache.num_used, cache.num_leaving) == (0, 0)
    cache.check()


def test_leaving_blocks_with_another_owner_do_not_count_as_coming_back(make_cache, compute):
    cache = make_cache()
    first = compute(cache, list(range(12)))
    second = compute(cache, [*range(8), 60])
    cache.close(first, last_step=1)
    assert cache.num_leaving == 1
    assert cache.reclaimable([second]) == 1
    cache.close(second, last_step=1)
    assert cache.num_leaving == 4
    cache.retire(1)
    assert cache.num_used == 0


def test_what_closing_several_requests_returns_counts_what_they_share(make_cache, compute):
    cache = make_cache()
    first, second = compute(cache, list(range(9))), compute(cache, [*range(8), 60])
    assert cache.reclaimable([first]) == 1
    assert cache.reclaimable([first, second]) == 4


def test_reach_is_the_length_that_all_available_blocks_allow(make_cache, compute):
    cache = make_cache(None, None, num_blocks=9)
    tables = compute(cache, list(range(6)))
    assert tables.capacity == 8
    assert cache.available == 5
    assert cache.reach(tables) == 8 + 2 * 4
    cache.extend(tables, 16)
    assert cache.reach(tables) == 16


def test_a_pool_that_cannot_hold_one_block_per_group_is_refused(groups_of):
    with pytest.raises(ValueError, match="1 blocks of 4 tokens cannot serve 2 KV groups"):
        KVCacheManager(groups_of(None, 8), 1, 4, True, b"")


def test_check_finds_tables_that_name_a_block_they_do_not_own(make_cache, compute):
    cache = make_cache()
    tables = compute(cache, list(range(6)))
    tables.blocks[0].append(9)
    with pytest.raises(CacheCorruptError, match="block 9 counts 0 owners, has 1"):
        cache.check()


class MostRecent(EvictionPolicy):
    """Forgets what was used last."""

    def __init__(self):
        self.blocks = []

    def add(self, block):
        self.blocks.append(block)

    def remove(self, block):
        self.blocks.remove(block)

    def pop(self):
        return self.blocks.pop()

    def __len__(self):
        return len(self.blocks)


def test_another_eviction_policy_can_be_given(groups_of, compute):
    cache = KVCacheManager(groups_of(None), 4, 4, True, b"", MostRecent())
    cache.close(compute(cache, [1] * 8), 0)
    cache.close(compute(cache, [2] * 8), 0)
    cache.close(compute(cache, [3] * 4), 0)
    assert cached_tokens(cache, [1] * 9) == 8
    assert cached_tokens(cache, [2] * 9) == 0
