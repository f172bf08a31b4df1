"""How requests end: by stop ids, lengths, aborts and errors, and those that cannot begin."""

from __future__ import annotations

import pytest

from infer.kv_cache.capacity import max_model_len_that_fits
from infer.scheduling.request import Request
from infer_plugin_api.execution import StepResult, TokenLogprobs
from infer_plugin_api.sampling import SamplingParams


def finish_of(simulation, request_id):
    finish = simulation.outcomes[request_id].finish
    return finish.finish_reason, finish.stop_reason


def test_a_stop_id_ends_a_request_and_is_reported(simulate):
    simulation = simulate()
    third = simulation.expected_of([5, 6], 9)[2]
    request_id = simulation.add([5, 6], max_tokens=9, stop_ids=(third,))
    simulation.drain()
    assert finish_of(simulation, request_id) == ("stop", third)
    assert simulation.outcomes[request_id].token_ids[-1] == third


def test_an_end_of_sequence_id_ends_a_request_and_is_not_reported(simulate):
    simulation = simulate()
    third = simulation.expected_of([5, 6], 9)[2]
    request_id = simulation.add([5, 6], max_tokens=9, stop_ids=(third,), eos_ids=(third,))
    simulation.drain()
    assert finish_of(simulation, request_id) == ("stop", None)


def test_an_ignored_end_of_sequence_id_ends_nothing(simulate):
    simulation = simulate()
    third = simulation.expected_of([5, 6], 9)[2]
    request_id = simulation.add([5, 6], max_tokens=9, stop_ids=(), eos_ids=(third,))
    simulation.drain()
    assert finish_of(simulation, request_id) == ("length", None)


def test_a_stop_id_on_the_last_allowed_token_is_a_stop(simulate):
    simulation = simulate()
    third = simulation.expected_of([5, 6], 3)[2]
    request_id = simulation.add([5, 6], max_tokens=3, stop_ids=(third,))
    simulation.drain()
    assert finish_of(simulation, request_id) == ("stop", third)


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 5])
def test_no_stop_before_min_tokens(simulate, min_tokens):
    simulation = simulate(vocab_size=3)
    request_id = simulation.add([1], max_tokens=9, min_tokens=min_tokens, stop_ids=(0, 1))
    simulation.drain()
    assert len(simulation.outcomes[request_id].token_ids) > min_tokens


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "answer"), [(14, 1, 1), (14, None, 2), (15, 5, 1)]
)
def test_prompt_and_answer_never_exceed_the_model_length(simulate, prompt, max_tokens, answer):
    simulation = simulate(max_model_len=16)
    request_id = simulation.add([1] * prompt, max_tokens=max_tokens)
    simulation.drain()
    assert finish_of(simulation, request_id) == ("length", None)
    assert len(simulation.outcomes[request_id].token_ids) == answer


@pytest.mark.parametrize("prompt", [16, 17])
def test_a_prompt_without_room_for_an_answer_is_refused_with_both_numbers(simulate, prompt):
    simulation = simulate(max_model_len=16)
    with pytest.raises(ValueError, match=rf"prompt has {prompt} tokens.*at most 15"):
        simulation.add([1] * prompt)
    simulation.drain()


def test_a_request_that_never_fits_the_cache_is_refused_and_blocks_nobody(simulate):
    simulation = simulate(num_blocks=16, block_size=16, max_model_len=2048, max_num_seqs=2)
    big = Request(request_id="big", prompt_token_ids=[1] * 600, params=SamplingParams())
    assert "need 39 KV cache blocks of 16 tokens, but the cache has 16" in (
        simulation.scheduler.cannot_fit(big)
    )
    with pytest.raises(ValueError, match="'big': prompt and answer need"):
        simulation.scheduler.add(big)
    small = simulation.add([1] * 10)
    simulation.drain()
    assert finish_of(simulation, small) == ("length", None)


def test_the_largest_request_that_fits_alone_runs_alone(simulate):
    simulation = simulate(windows=(None, 6), num_blocks=20, block_size=4, max_model_len=1000)
    longest = max_model_len_that_fits(simulation.world.groups(), 20, 4, 1000)
    request = simulation.add([1] * 10, max_tokens=longest - 10)
    other = Request(
        request_id="x", prompt_token_ids=[1] * 10, params=SamplingParams(max_tokens=longest - 9)
    )
    assert simulation.scheduler.cannot_fit(other) is not None
    simulation.drain()
    assert finish_of(simulation, request) == ("length", None)


def test_an_empty_prompt_is_refused(simulate):
    with pytest.raises(ValueError, match="the prompt has no tokens"):
        simulate().add([])


def test_a_request_id_in_use_is_refused(simulate):
    simulation = simulate()
    simulation.add([1], request_id="same")
    with pytest.raises(ValueError, match="'same' is in use already"):
        simulation.add([2], request_id="same")
    simulation.drain()


def test_a_waiting_request_can_be_aborted(simulate):
    simulation = simulate(max_num_seqs=1)
    simulation.add([1], max_tokens=3)
    waiting = simulation.add([2], max_tokens=3)
    simulation.schedule()
    (update,) = simulation.abort(waiting)
    assert (update.finish_reason, update.token_ids) == ("abort", [])
    assert simulation.scheduler.num_waiting == 0
    simulation.drain()


def test_aborting_a_chunked_prefill_frees_its_blocks_when_its_steps_retire(simulate):
    simulation = simulate(max_num_batched_tokens=4, caching=False)
    request = simulation.add([1] * 20)
    simulation.schedule()
    simulation.schedule()
    simulation.abort(request)
    assert simulation.cache.num_used == 2
    simulation.update()
    assert simulation.cache.num_used == 2
    simulation.update()
    assert simulation.cache.num_used == 0


def test_a_block_whose_computation_was_aborted_halfway_is_not_found_again(simulate):
    simulation = simulate(max_num_batched_tokens=6, block_size=4, max_in_flight=1)
    simulation.abort_after_one_step([1] * 12)
    again = simulation.add([1] * 12)
    simulation.drain()
    assert simulation.outcomes[again].request.num_cached_tokens == 4


def test_an_id_can_be_used_again_right_after_its_abort_in_flight(simulate):
    simulation = simulate()
    for _ in range(20):
        simulation.add([1, 2, 3], max_tokens=20, request_id="same")
        simulation.schedule()
        simulation.schedule()
        simulation.abort("same")
        simulation.update()
    simulation.add([1, 2, 3], max_tokens=20, request_id="same")
    simulation.drain()
    assert finish_of(simulation, "same") == ("length", None)


def test_unknown_and_finished_ids_are_ignored_by_abort(simulate):
    simulation = simulate()
    done = simulation.add([1], max_tokens=1)
    simulation.drain()
    assert simulation.scheduler.abort(["never seen", done]) == []


def test_a_row_that_fails_ends_its_request_and_no_other(simulate):
    simulation = simulate()
    bad, good = simulation.add([1, 2], max_tokens=5), simulation.add([3, 4], max_tokens=5)
    simulation.worker.failing.add(bad)
    simulation.drain()
    assert simulation.outcomes[bad].finish.finish_reason == "error"
    assert simulation.outcomes[bad].finish.error == "the logits processor failed"
    assert finish_of(simulation, good) == ("length", None)


def test_logprobs_come_with_their_tokens_and_end_with_the_request(simulate):
    simulation = simulate(lookahead=2, max_in_flight=1)
    scheduler = simulation.scheduler
    request = Request(
        request_id="r", prompt_token_ids=[1], params=SamplingParams(max_tokens=9, logprobs=0)
    )
    request.stop_ids = (8,)
    scheduler.add(request)
    entries = [TokenLogprobs(-float(i), 1, [], []) for i in range(3)]
    plan = scheduler.schedule()
    (update,) = scheduler.update(plan, StepResult(plan.step_id, [[5]], [entries[:1]]))
    assert update.logprobs == entries[:1]
    plan = scheduler.schedule()
    (update,) = scheduler.update(plan, StepResult(plan.step_id, [[6, 8, 7]], [entries]))
    assert update.token_ids == [6, 8]
    assert update.logprobs == entries[:2]
    assert update.finish_reason == "stop"


@pytest.mark.parametrize("ids", [[], [1, 2]])
def test_a_worker_that_returns_a_wrong_number_of_ids_is_an_error(simulate, ids):
    scheduler = simulate().scheduler
    params = SamplingParams(max_tokens=9)
    scheduler.add(Request(request_id="r", prompt_token_ids=[1], params=params))
    plan = scheduler.schedule()
    with pytest.raises(RuntimeError, match=f"returned {len(ids)} ids for request r"):
        scheduler.update(plan, StepResult(plan.step_id, [ids]))


def test_results_out_of_order_are_an_error(simulate):
    simulation = simulate()
    simulation.add([1, 2], max_tokens=5)
    simulation.schedule()
    simulation.schedule()
    plan, result, _ = simulation.in_flight[1]
    with pytest.raises(RuntimeError, match="result of step 2 arrived out of order"):
        simulation.scheduler.update(plan, result)
    simulation.drain()
