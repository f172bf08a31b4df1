"""Preemption: for memory, for a slot, and what becomes of those who lose."""

from __future__ import annotations

import pytest

from infer.scheduling.policies import FCFS


def test_the_last_arrival_gives_way_when_memory_runs_out(simulate):
    simulation = simulate(num_blocks=8, block_size=2, max_in_flight=1, caching=False)
    first = simulation.add([1, 2, 3, 4], max_tokens=12)
    second = simulation.add([5, 6, 7, 8], max_tokens=12)
    simulation.drain()
    outcomes = simulation.outcomes
    assert outcomes[first].request.num_preemptions == 0
    assert outcomes[second].request.num_preemptions >= 1


def test_a_preempted_request_goes_on_with_what_it_had_generated(simulate):
    simulation = simulate(num_blocks=8, block_size=2, caching=False)
    simulation.add([1, 2, 3, 4], max_tokens=12)
    second = simulation.add([5, 6, 7, 8], max_tokens=12)
    simulation.drain()
    admissions = [
        admission
        for plan in simulation.plans
        for admission in plan.admissions
        if admission.request_id == second
    ]
    assert len(admissions) == 2
    assert admissions[1].num_prompt_tokens == 4
    generated = len(admissions[1].token_ids) - 4
    assert generated > 0
    assert admissions[1].token_ids[4:] == simulation.expected(second)[:generated]


def test_the_cached_tokens_reported_are_those_of_the_first_admission(simulate):
    simulation = simulate(num_blocks=8, block_size=2)
    simulation.add([1, 2, 3, 4], max_tokens=12)
    second = simulation.add([5, 6, 7, 8], max_tokens=12)
    simulation.drain()
    assert simulation.outcomes[second].request.num_preemptions >= 1
    assert simulation.outcomes[second].finish.num_cached_tokens == 0
    assert simulation.scheduler.stats().prefix_queries == 8


def preempt_in_flight(simulation):
    """Return a request that was just displaced while a step in flight samples for it."""
    low = simulation.add([1, 2, 3], max_tokens=6, priority=5)
    simulation.schedule()
    simulation.add([4, 5, 6], max_tokens=2, priority=0)
    simulation.schedule()
    request = simulation.outcomes[low].request
    assert request.num_preemptions == 1
    return request


def test_a_token_in_flight_of_a_preempted_request_is_kept(simulate):
    simulation = simulate(max_num_seqs=1, policy="priority")
    request = preempt_in_flight(simulation)
    (update,) = simulation.update()
    assert update.request_id == request.request_id
    assert len(update.token_ids) == 1
    simulation.drain()


def test_a_preempted_request_waits_for_its_steps_in_flight(simulate):
    simulation = simulate(num_blocks=5, block_size=2, policy="priority")
    low = simulation.add([1, 2, 3], max_tokens=6, priority=5)
    simulation.schedule()
    urgent = simulation.add([4] * 8, max_tokens=2, priority=0)
    assert simulation.schedule() is None
    simulation.abort(urgent)
    request = simulation.outcomes[low].request
    assert request.num_preemptions == 1
    assert simulation.schedule() is None, "there is room, but a step that samples for it is out"
    simulation.update()
    assert simulation.schedule().admissions[0].token_ids == request.token_ids
    assert request.num_output_tokens == 1
    simulation.drain()


def test_a_preempted_request_can_finish_by_its_token_in_flight(simulate):
    simulation = simulate(max_num_seqs=1, policy="priority")
    stop = simulation.expected_of([1, 2, 3], 1)[0]
    low = simulation.add([1, 2, 3], max_tokens=6, priority=5, stop_ids=(stop,))
    simulation.schedule()
    simulation.add([4, 5, 6], max_tokens=2, priority=0)
    simulation.schedule()
    (update,) = simulation.update()
    assert (update.request_id, update.finish_reason) == (low, "stop")
    assert simulation.scheduler.num_waiting == 1
    simulation.drain()


def test_an_urgent_request_displaces_the_least_urgent_when_all_slots_are_taken(simulate):
    simulation = simulate(max_num_seqs=2, max_in_flight=1, policy="priority")
    middle = simulation.add([1, 2], max_tokens=40, priority=5)
    low = simulation.add([3, 4], max_tokens=40, priority=9)
    simulation.round()
    urgent = simulation.add([5, 6], max_tokens=4, priority=0)
    plan = simulation.schedule()
    assert [admission.request_id for admission in plan.admissions] == [urgent]
    outcomes = simulation.outcomes
    assert outcomes[low].request.num_preemptions == 1
    assert outcomes[middle].request.num_preemptions == 0
    simulation.drain()


def test_equal_priority_displaces_nobody(simulate):
    simulation = simulate(max_num_seqs=1, policy="priority")
    simulation.add([1, 2], max_tokens=10, priority=3)
    simulation.round()
    simulation.add([3, 4], max_tokens=2, priority=3)
    simulation.drain()
    assert simulation.scheduler.stats().preemptions == 0


def test_first_come_first_served_ignores_priorities(simulate):
    simulation = simulate(max_num_seqs=1)
    first = simulation.add([1, 2], max_tokens=10, priority=9)
    second = simulation.add([3, 4], max_tokens=2, priority=0)
    simulation.drain()
    assert simulation.scheduler.stats().preemptions == 0
    outcomes = simulation.outcomes
    assert outcomes[first].request.last_step < outcomes[second].request.last_step


def test_an_urgent_request_displaces_others_for_memory_too(simulate):
    simulation = simulate(num_blocks=10, block_size=2, policy="priority", max_in_flight=1)
    low = simulation.add([1] * 14, max_tokens=6, priority=9)
    simulation.round()
    urgent = simulation.add([2] * 12, max_tokens=2, priority=0)
    simulation.drain()
    outcomes = simulation.outcomes
    assert outcomes[low].request.num_preemptions == 1
    assert outcomes[urgent].request.last_step < outcomes[low].request.last_step


def test_nobody_is_displaced_when_that_cannot_make_enough_room(simulate):
    simulation = simulate(num_blocks=10, block_size=2, policy="priority", max_in_flight=1)
    simulation.add([1] * 12, max_tokens=6, priority=0)
    low = simulation.add([3], max_tokens=6, priority=9)
    simulation.round()
    simulation.add([2] * 8, max_tokens=2, priority=5)
    for _ in range(3):
        simulation.round()
    assert simulation.outcomes[low].request.num_preemptions == 0
    simulation.drain()


def test_an_urgent_request_is_served_before_decodes_that_use_up_the_budget(simulate):
    simulation = simulate(max_num_batched_tokens=1, policy="priority", max_in_flight=1)
    simulation.add([1], max_tokens=60, priority=9)
    for _ in range(3):
        simulation.round()
    urgent = simulation.add([2, 3], max_tokens=2, priority=0)
    for _ in range(3):
        simulation.round()
    assert simulation.outcomes[urgent].finish is not None
    simulation.drain()


def test_urgent_requests_pass_long_ones_and_nobody_starves(simulate):
    simulation = simulate(
        max_num_seqs=2,
        policy="priority",
        num_blocks=200,
        block_size=16,
        max_num_batched_tokens=128,
        max_model_len=1200,
    )
    long = [simulation.add([i] * 500, max_tokens=500, priority=10) for i in range(2)]
    for _ in range(20):
        simulation.round()
    urgent = simulation.add([7] * 5, max_tokens=5, priority=0)
    flow = []
    for index in range(30):
        flow.append(simulation.add([8, index], max_tokens=10, priority=5))
        for _ in range(4):
            simulation.round()
    assert simulation.outcomes[urgent].finish is not None
    assert all(simulation.outcomes[request].finish is None for request in long)
    simulation.drain()
    for request in [urgent, *flow, *long]:
        assert simulation.outcomes[request].token_ids == simulation.expected(request)
    assert all(simulation.outcomes[request].request.num_preemptions <= 31 for request in long)


class Stubborn(FCFS):
    """Preempts whomever it can, wherever it can."""

    def preempts(self, waiting, running):
        return True


def test_a_policy_that_always_preempts_cannot_make_requests_displace_each_other_for_ever(simulate):
    simulation = simulate(max_num_seqs=1, policy=Stubborn())
    for index in range(6):
        simulation.add([index, 1], max_tokens=5)
    simulation.drain()
    assert simulation.scheduler.stats().preemptions == 0


class Backwards(FCFS):
    """Preempts the oldest request it is offered."""

    def victim(self, running):
        return running[0]


def test_the_request_that_ranks_first_is_never_a_victim(simulate):
    simulation = simulate(num_blocks=10, block_size=2, max_num_seqs=3, policy=Backwards())
    first = simulation.add([1, 2, 3], max_tokens=14)
    others = [simulation.add([index] * 3, max_tokens=14) for index in (4, 5)]
    simulation.drain()
    preempted = [simulation.outcomes[request].request.num_preemptions for request in others]
    assert simulation.outcomes[first].request.num_preemptions == 0
    assert sum(preempted) > 0


class Confused(FCFS):
    """Chooses a victim that is not among those offered."""

    def victim(self, running):
        return object()


def test_a_policy_that_invents_victims_is_an_error(simulate):
    simulation = simulate(num_blocks=8, block_size=2, max_in_flight=1, policy=Confused())
    simulation.add([1, 2, 3, 4], max_tokens=12)
    simulation.add([5, 6, 7, 8], max_tokens=12)
    with pytest.raises(RuntimeError, match="not a candidate"):
        simulation.drain()
