"""Prometheus metrics, in a registry of their own.

Label values are bounded: finish reasons, failure reasons, phases and provider names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
_OTHER = "other"

FINISH_REASONS = frozenset({"stop", "length", "abort", "error"})
FAILURE_REASONS = frozenset(
    {"invalid", "unauthorized", "not_found", "overloaded", "unavailable", "timeout", "engine"}
    | {"disconnected"}
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)
_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class EngineSnapshot(Protocol):
    """What the metrics read of the engine's state after a step. Counters only grow."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def kv_blocks_used(self) -> int: ...
    @property
    def kv_blocks_total(self) -> int: ...
    @property
    def prefix_queries(self) -> int: ...
    @property
    def prefix_hits(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def step_tokens(self) -> int: ...
    @property
    def prefill_requests(self) -> int: ...
    @property
    def decode_requests(self) -> int: ...


class Metrics:
    """Every metric of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self.registry.register(self._engine)
        self._success = self._counter(
            "request_success", "Answers that ended, by how.", ("finish_reason",)
        )
        self._failure = self._counter(
            "request_failure", "Requests without a whole answer, by why.", ("reason",)
        )
        self._prompt_total = self._counter("prompt_tokens", "Prompt tokens of accepted requests.")
        self._generated_total = self._counter("generation_tokens", "Tokens generated.")
        self.first_token = self._seconds("time_to_first_token", "From arrival to the first token.")
        self.inter_token = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of an answer.", _SHORT_SECONDS
        )
        self.whole = self._seconds("e2e_request_latency", "From arrival to the last token.")
        self.queued = self._seconds("request_queue_time", "From arrival to the first computing.")
        self.prefill = self._seconds(
            "request_prefill_time", "From the first computing to the first token."
        )
        self.decode = self._seconds("request_decode_time", "From the first token to the last.")
        self.prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a request.", _TOKENS
        )
        self.generation_tokens = self._histogram(
            "request_generation_tokens", "Generated tokens of an answer.", _TOKENS
        )
        self._step_tokens = self._histogram("step_tokens", "Tokens computed in a step.", _BATCH)
        self._step_seconds = self._histogram(
            "step_duration_seconds", "Time of a step.", _SHORT_SECONDS
        )
        self._step_requests = Histogram(
            "infer_step_requests",
            "Requests of a step, by phase.",
            ("phase",),
            buckets=_BATCH,
            registry=self.registry,
        )
        self._phases = {
            phase: self._step_requests.labels(phase=phase) for phase in ("prefill", "decode")
        }
        for reason in FINISH_REASONS:
            self._success.labels(finish_reason=reason)
        for reason in FAILURE_REASONS:
            self._failure.labels(reason=reason)

    def observe_engine(self, stats: EngineSnapshot) -> None:
        """Take the engine's state after a step."""
        before = self._engine.stats
        self._engine.stats = stats
        if before is not None and stats.steps == before.steps:
            return
        if stats.step_tokens:
            self._step_tokens.observe(stats.step_tokens)
            self._step_seconds.observe(stats.step_seconds)
            self._phases["prefill"].observe(stats.prefill_requests)
            self._phases["decode"].observe(stats.decode_requests)

    def prompt(self, tokens: int) -> None:
        """Count the prompt of a request that the engine has taken."""
        self._prompt_total.inc(tokens)
        self.prompt_tokens.observe(tokens)

    def generated(self, tokens: int) -> None:
        """Count new tokens."""
        self._generated_total.inc(tokens)

    def succeeded(self, finish_reason: str) -> None:
        """Count an answer that ended."""
        known = finish_reason if finish_reason in FINISH_REASONS else _OTHER
        self._success.labels(finish_reason=known).inc()

    def failed(self, reason: str) -> None:
        """Count a request that got an error, or whose client went away."""
        known = reason if reason in FAILURE_REASONS else _OTHER
        self._failure.labels(reason=known).inc()

    def describe(self, providers: Mapping[str, str], versions: Mapping[str, str]) -> None:
        """Report what serves each slot.

        providers: ``plugin:name`` by slot. versions: of the plugins' distributions, by plugin.
        """
        info = Gauge(
            "infer_plugin_info",
            "What serves each slot; always 1.",
            ("slot", "name", "version"),
            registry=self.registry,
        )
        for slot, name in providers.items():
            plugin = name.partition(":")[0]
            info.labels(slot=slot, name=name, version=versions.get(plugin, "unknown")).set(1)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"infer_{name}", text, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"infer_{name}", text, buckets=buckets, registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return self._histogram(f"{name}_seconds", text, _SECONDS)


class _EngineCollector(Collector):
    """Reads the engine's own figures when they are asked for, so that none can go stale."""

    def __init__(self) -> None:
        self.stats: EngineSnapshot | None = None

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = self.stats
        if stats is None:
            return
        usage = stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0
        for name, text, gauge in (
            ("requests_running", "Requests that are being computed.", float(stats.running)),
            ("requests_waiting", "Requests that wait to be computed.", float(stats.waiting)),
            ("kv_cache_usage_ratio", "Share of KV blocks that requests hold, 0 to 1.", usage),
        ):
            yield GaugeMetricFamily(f"infer_{name}", text, value=gauge)
        for name, text, count in (
            (
                "preemptions",
                "Requests that gave up their place.",
                "preemptions",
            ),
            ("prefix_cache_queries", "Prompt tokens looked up.", "prefix_queries"),
            ("prefix_cache_hits", "Prompt tokens found.", "prefix_hits"),
        ):
            yield CounterMetricFamily(f"infer_{name}", text, value=float(getattr(stats, count)))
