"""The pool: who owns a block, what it is worth when nobody does, and which one is taken."""

from __future__ import annotations

import random

import pytest

from infer.kv_cache.eviction import LRU
from infer.kv_cache.free_map import FreeMap
from infer.kv_cache.pool import BlockPool, CacheCorruptError


def test_blocks_of_one_table_are_neighbours():
    pool = BlockPool(100, LRU())
    table = pool.take(3, None, 10)
    other = pool.take(2, None, 10)
    for _ in range(7):
        table += pool.take(1, table[-1], 10 - len(table))
        other += pool.take(1, other[-1], 10 - len(other))
    assert table == list(range(10))
    assert other == list(range(10, 19))


def test_kept_room_is_given_to_others_when_nothing_else_is_free():
    pool = BlockPool(10, LRU())
    table = pool.take(1, None, 10)
    others = [pool.take(1, None, 10)[0] for _ in range(9)]
    assert sorted(table + others) == list(range(10))
    assert pool.available == 0


def test_a_table_that_ends_lets_go_of_its_room():
    pool = BlockPool(10, LRU())
    table = pool.take(2, None, 6)
    pool.end_run(table[-1])
    for block in table:
        pool.give(block)
    assert pool.take(1, None, 10) == [0]


def test_new_tables_start_low_so_that_unused_memory_stays_untouched():
    pool = BlockPool(1000, LRU())
    for _ in range(50):
        blocks = pool.take(4, None, 8)
        assert blocks == [0, 1, 2, 3]
        pool.end_run(3)
        for block in blocks:
            pool.give(block)


def test_named_blocks_are_evicted_only_when_nothing_is_free():
    pool = BlockPool(4, LRU())
    (first,) = pool.take(1, None, 1)
    pool.name(first, b"a")
    pool.give(first)
    assert pool.available == 4
    assert first not in pool.take(3, None, 1)
    assert pool.find(b"a") == first
    assert pool.take(1, None, 1) == [first]
    assert pool.find(b"a") is None


def test_the_least_recently_used_content_goes_first_and_use_renews_it():
    pool = BlockPool(3, LRU())
    blocks = pool.take(3, None, 3)
    for block, key in zip(blocks, (b"a", b"b", b"c"), strict=True):
        pool.name(block, key)
        pool.give(block)
    pool.share(blocks[0])
    pool.give(blocks[0])
    assert pool.take(1, None, 1) == [blocks[1]]
    assert pool.find(b"a") == blocks[0]


def test_evicted_blocks_are_taken_in_ascending_order():
    pool = BlockPool(4, LRU())
    for block in pool.take(4, None, 4):
        pool.name(block, bytes([block]))
    for block in (3, 2, 1, 0):
        pool.give(block)
    assert pool.take(4, None, 4) == [0, 1, 2, 3]


def test_the_first_of_equal_contents_is_the_one_found():
    pool = BlockPool(4, LRU())
    first, second = pool.take(2, None, 2)
    pool.name(first, b"same")
    pool.name(second, b"same")
    pool.give(second)
    assert pool.find(b"same") == first
    pool.check({first: 1})


def test_a_shared_block_stays_until_its_last_owner_leaves():
    pool = BlockPool(2, LRU())
    (block,) = pool.take(1, None, 1)
    pool.name(block, b"k")
    pool.share(block)
    pool.give(block)
    assert pool.available == 1
    pool.give(block)
    assert pool.available == 2


def test_giving_a_block_twice_is_an_error():
    pool = BlockPool(2, LRU())
    (block,) = pool.take(1, None, 1)
    pool.give(block)
    with pytest.raises(CacheCorruptError, match=f"block {block} lost an owner"):
        pool.give(block)


def test_taking_more_than_there_is_is_an_error_and_takes_nothing():
    pool = BlockPool(2, LRU())
    with pytest.raises(CacheCorruptError, match="3 blocks were taken with 2 available"):
        pool.take(3, None, 3)
    assert pool.available == 2


def test_check_finds_a_lost_block():
    pool = BlockPool(3, LRU())
    (block,) = pool.take(1, None, 1)
    pool.check({block: 1})
    with pytest.raises(CacheCorruptError, match=f"block {block} counts 1 owners, has 0"):
        pool.check({})


@pytest.mark.parametrize("seed", range(20))
def test_the_free_map_agrees_with_a_set(seed):
    choose = random.Random(seed)
    free, taken = FreeMap(40), []
    for _ in range(400):
        assert len(free) == 40 - len(taken)
        assert all((block in free) == (block not in taken) for block in range(40))
        if taken and (choose.random() < 0.45 or len(taken) == 40):
            block = taken.pop(choose.randrange(len(taken)))
            if choose.random() < 0.5:
                free.end_run(block)
            free.give(block)
        else:
            after = choose.choice(taken) if taken and choose.random() < 0.7 else None
            block = free.take(after, choose.randint(-1, 12))
            assert block not in taken
            taken.append(block)


def test_the_free_map_refuses_a_block_that_is_free_already():
    free = FreeMap(3)
    with pytest.raises(RuntimeError, match="block 1 was returned twice"):
        free.give(1)
