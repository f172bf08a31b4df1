"""The prefix cache seen from requests."""

from __future__ import annotations

import random

import pytest


def ask(simulation, prompt, **fields):
    request = simulation.add(prompt, **fields)
    simulation.drain()
    return simulation.outcomes[request].finish.num_cached_tokens


@pytest.mark.parametrize(
    ("length", "cached"), [(15, 0), (16, 0), (17, 16), (31, 16), (32, 16), (33, 32)]
)
@pytest.mark.parametrize("windows", [(None,), (None, 20), (24,)])
def test_a_repeated_prompt_is_cached_to_full_blocks_and_never_whole(
    simulate, windows, length, cached
):
    simulation = simulate(windows=windows, block_size=16, num_blocks=20)
    prompt = list(range(length))
    assert ask(simulation, prompt, max_tokens=4) == 0
    assert ask(simulation, prompt, max_tokens=4) == cached


def test_answers_after_a_flood_of_other_prompts_are_the_same(simulate):
    simulation = simulate(block_size=16, num_blocks=20, max_num_batched_tokens=64, vocab_size=999)
    prompts = [list(range(length)) for length in (15, 16, 17, 31, 32, 33)]
    for prompt in prompts * 2:
        ask(simulation, prompt, max_tokens=20)
    random_ids = random.Random(5)
    for _ in range(200):
        length = random_ids.randint(1, 60)
        simulation.add([random_ids.randrange(999) for _ in range(length)], max_tokens=8)
    simulation.drain()
    for prompt in prompts:
        assert ask(simulation, prompt, max_tokens=20) % 16 == 0
    assert simulation.cache.num_cached <= 20


def test_generated_tokens_are_cached_too(simulate):
    simulation = simulate(block_size=4)
    first = simulation.add([1, 2, 3], max_tokens=10)
    simulation.drain()
    conversation = [1, 2, 3, *simulation.expected(first), 40, 41]
    assert ask(simulation, conversation) == 12


def test_a_request_can_use_blocks_that_a_step_in_flight_computes(simulate):
    simulation = simulate(block_size=4, max_num_batched_tokens=32)
    simulation.add(list(range(9)), max_tokens=4)
    simulation.schedule()
    second = simulation.add([*range(8), 30], max_tokens=4)
    simulation.schedule()
    assert simulation.outcomes[second].request.num_cached_tokens == 8
    simulation.drain()


def test_two_requests_that_compute_the_same_at_once_leave_one_cached_copy(simulate):
    simulation = simulate(block_size=4, max_num_batched_tokens=32)
    simulation.add([1] * 9, max_tokens=1)
    simulation.add([1] * 9, max_tokens=1)
    simulation.drain()
    assert simulation.cache.num_cached == 2


def test_another_salt_finds_nothing(simulate):
    simulation = simulate(block_size=4)
    ask(simulation, [1] * 9, salt="alice")
    assert ask(simulation, [1] * 9, salt="bob") == 0
    assert ask(simulation, [1] * 9, salt="alice") == 8


def test_switched_off_it_finds_and_counts_nothing(simulate):
    simulation = simulate(caching=False)
    assert ask(simulation, [1] * 20) == 0
    assert ask(simulation, [1] * 20) == 0
    stats = simulation.scheduler.stats()
    assert (stats.prefix_queries, stats.prefix_hits) == (0, 0)
    assert simulation.cache.num_cached == 0


def test_a_sliding_group_needs_its_last_window_only(simulate):
    simulation = simulate(windows=(None, 5), block_size=4, num_blocks=64)
    ask(simulation, [1] * 41, max_tokens=1)
    request = simulation.add([1] * 41, max_tokens=1)
    plan = simulation.schedule()
    assert simulation.outcomes[request].request.num_cached_tokens == 40
    starts = {append.group: append.start for append in reversed(plan.appends)}
    assert starts == {0: 0, 1: 9}
    simulation.drain()


def test_one_window_of_blocks_is_enough_for_an_endless_request(simulate):
    simulation = simulate(windows=(6,), block_size=2, num_blocks=6, max_model_len=500)
    request = simulation.add([1] * 100, max_tokens=300)
    simulation.drain()
    assert len(simulation.outcomes[request].token_ids) == 300
    assert simulation.scheduler.stats().preemptions == 0
