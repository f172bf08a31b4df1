"""Steps that verify drafts: several tokens appended, some of them rolled back."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("draft_hits", [0, 5, 10])
@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_drafts_change_the_number_of_steps_and_never_the_answer(
    simulate, draft_hits, max_in_flight
):
    simulation = simulate(lookahead=3, draft_hits=draft_hits, max_in_flight=max_in_flight)
    request = simulation.add([1, 2, 3], max_tokens=17)
    simulation.drain()
    assert simulation.outcomes[request].token_ids == simulation.expected(request)
    sampled = sum(plan.rows[0].sample for plan in simulation.plans)
    assert sampled == {0: 17, 10: 5}.get(draft_hits, sampled)
    assert 5 <= sampled <= 17


def test_a_row_is_not_planned_while_its_drafts_are_verified(simulate):
    simulation = simulate(lookahead=3)
    simulation.add([1, 2, 3], max_tokens=17)
    simulation.schedule()
    verifying = simulation.schedule()
    assert (verifying.rows[0].start, verifying.rows[0].num_tokens) == (3, 4)
    simulation.update()
    assert simulation.schedule() is None
    simulation.update()
    assert simulation.schedule() is not None
    simulation.drain()


def test_other_rows_go_on_meanwhile(simulate):
    simulation = simulate(lookahead=3)
    simulation.add([1, 2, 3], max_tokens=17)
    simulation.schedule()
    simulation.schedule()
    simulation.add([4, 5, 6], max_tokens=2)
    simulation.update()
    assert [step.row for step in simulation.schedule().rows] == [1]
    simulation.drain()


def test_rejected_drafts_leave_no_findable_block(simulate):
    simulation = simulate(lookahead=7, draft_hits=0, block_size=2, max_in_flight=1)
    request = simulation.add([1, 2], max_tokens=9)
    simulation.round()
    simulation.schedule()
    assert simulation.cache.num_used == 5
    assert simulation.cache.num_cached == 1
    simulation.update()
    assert simulation.cache.num_cached == 1
    simulation.drain()
    assert simulation.cache.num_cached == 5
    answer = simulation.expected(request)
    again = simulation.add([1, 2, *answer], max_tokens=2)
    simulation.drain()
    assert simulation.outcomes[again].finish.num_cached_tokens == 10


def test_drafts_never_reach_past_the_answers_length(simulate):
    simulation = simulate(lookahead=8, draft_hits=10)
    request = simulation.add([1], max_tokens=4)
    simulation.drain()
    assert len(simulation.outcomes[request].token_ids) == 4
    assert max(step.start + step.num_tokens for plan in simulation.plans for step in plan.rows) == 4


def test_a_stop_among_accepted_drafts_wins_over_the_length(simulate):
    simulation = simulate(lookahead=6, draft_hits=10)
    third = simulation.expected_of([1], 9)[2]
    request = simulation.add([1], max_tokens=3, stop_ids=(third,))
    longer = simulation.add([1], max_tokens=9, stop_ids=(third,))
    simulation.drain()
    for request_id in (request, longer):
        assert len(simulation.outcomes[request_id].token_ids) == 3
        assert simulation.outcomes[request_id].finish.finish_reason == "stop"


def test_drafts_leave_a_token_of_the_budget_for_every_other_decode(simulate):
    simulation = simulate(lookahead=8, max_num_batched_tokens=6, max_in_flight=1)
    for index in range(4):
        simulation.add([index], max_tokens=20)
    simulation.round()
    plan = simulation.schedule()
    assert len(plan.rows) == 4
    assert plan.num_tokens == 6
    simulation.drain()
