"""The thread plan."""

from __future__ import annotations

import os

import pytest

from infer.engine.threads import compute_threads, serving_environment


def test_one_thread_per_core_that_this_process_may_use() -> None:
    cores = len(os.sched_getaffinity(0))
    assert compute_threads(None) == cores
    assert compute_threads(3) == 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_process_bound_to_one_core_computes_on_one() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert compute_threads(None) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_workers_of_a_serving_engine_sleep_when_idle() -> None:
    variables = serving_environment(3)
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "3"
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"


def test_kernel_caches_are_bounded_unless_the_user_sized_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "77")
    variables = serving_environment(2)
    assert int(variables["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) < 1024
    assert variables["LRU_CACHE_CAPACITY"] == "77"
