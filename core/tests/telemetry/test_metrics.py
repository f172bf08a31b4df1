"""Metrics: what counts, what falls back, and that labels are bounded."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infer.telemetry.meter import RequestMeter
from infer.telemetry.metrics import Metrics


@dataclass(frozen=True)
class Snapshot:
    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 100
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    step_tokens: int = 0
    prefill_requests: int = 0
    decode_requests: int = 0


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name with labels."""
    return {
        sample.name
        + "".join(f"{{{k}={v}}}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def test_gauges_show_the_engines_latest_state() -> None:
    metrics = Metrics()
    metrics.observe_engine(Snapshot(running=3, waiting=2, kv_blocks_used=25))
    found = values(metrics)
    assert found["infer_requests_running"] == 3
    assert found["infer_requests_waiting"] == 2
    assert found["infer_kv_cache_usage_ratio"] == 0.25
    metrics.observe_engine(Snapshot())
    assert values(metrics)["infer_requests_running"] == 0
    assert values(metrics)["infer_kv_cache_usage_ratio"] == 0


def test_a_step_is_counted_once() -> None:
    metrics = Metrics()
    step = Snapshot(steps=1, step_tokens=40, step_seconds=0.02, prefill_requests=1)
    metrics.observe_engine(step)
    metrics.observe_engine(step)
    found = values(metrics)
    assert found["infer_step_tokens_count"] == 1
    assert found["infer_step_tokens_sum"] == 40
    assert found["infer_step_duration_seconds_sum"] == pytest.approx(0.02)
    assert found["infer_step_requests_sum{phase=prefill}"] == 1
    assert found["infer_step_requests_sum{phase=decode}"] == 0


def test_a_request_leaves_its_times_and_counts() -> None:
    metrics = Metrics()
    now = time.time()
    meter = RequestMeter(metrics, now - 2.0)
    meter.tokens(0, 1, prompt_tokens=7, first_scheduled=now - 0.5)
    meter.tokens(0, 1, prompt_tokens=7)
    meter.tokens(1, 1, prompt_tokens=7, first_scheduled=now - 0.5)
    meter.finished(0, "length")
    meter.finished(1, "stop")
    found = values(metrics)
    assert found["infer_prompt_tokens_total"] == 7
    assert found["infer_generation_tokens_total"] == 3
    assert found["infer_time_to_first_token_seconds_count"] == 1
    assert found["infer_time_to_first_token_seconds_sum"] == pytest.approx(2.0, abs=0.5)
    assert found["infer_inter_token_latency_seconds_count"] == 1
    assert found["infer_request_queue_time_seconds_sum"] == pytest.approx(3.0, abs=0.5)
    assert found["infer_request_prefill_time_seconds_count"] == 2
    assert found["infer_e2e_request_latency_seconds_count"] == 2
    assert found["infer_request_decode_time_seconds_count"] == 2
    assert found["infer_request_generation_tokens_sum"] == 3
    assert found["infer_request_success_total{finish_reason=length}"] == 1
    assert found["infer_request_success_total{finish_reason=stop}"] == 1


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    metrics.succeeded("a user's text")
    metrics.failed("another one")
    text = metrics.exposition().decode()
    assert "user" not in text
    assert 'infer_request_success_total{finish_reason="other"} 1.0' in text
    assert 'infer_request_failure_total{reason="other"} 1.0' in text


def test_providers_are_named_with_their_versions() -> None:
    metrics = Metrics()
    metrics.describe({"attention": "numba:paged"}, {"numba": "1.2"})
    assert values(metrics)["infer_plugin_info{name=numba:paged}{slot=attention}{version=1.2}"] == 1


def test_two_servers_in_a_process_do_not_share_counters() -> None:
    one, other = Metrics(), Metrics()
    one.failed("invalid")
    assert values(other)["infer_request_failure_total{reason=invalid}"] == 0
