"""One request's times and counts, turned into metrics as it goes."""

from __future__ import annotations

import time

from infer.telemetry.metrics import Metrics


class RequestMeter:
    """Watches the answers to one prompt. *arrival*: time.time() when the request came."""

    def __init__(self, metrics: Metrics, arrival: float) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._first = 0.0
        self._latest: dict[int, float] = {}
        self._starts: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def tokens(
        self, index: int, count: int, *, prompt_tokens: int, first_scheduled: float = 0.0
    ) -> None:
        """Tell that answer *index* grew by *count* tokens."""
        if not count:
            return
        now = time.time()
        metrics = self._metrics
        metrics.generated(count)
        if not self._first:
            self._first = now
            metrics.prompt(prompt_tokens)
            metrics.first_token.observe(now - self._arrival)
        before = self._latest.get(index)
        if before is None:
            self._starts[index] = now
            if first_scheduled:
                metrics.queued.observe(max(0.0, first_scheduled - self._arrival))
                metrics.prefill.observe(max(0.0, now - first_scheduled))
        else:
            for _ in range(count):
                metrics.inter_token.observe((now - before) / count)
        self._latest[index] = now
        self._counts[index] = self._counts.get(index, 0) + count

    def finished(self, index: int, reason: str) -> None:
        """Tell that answer *index* has ended."""
        now = time.time()
        metrics = self._metrics
        metrics.succeeded(reason)
        metrics.whole.observe(now - self._arrival)
        metrics.decode.observe(now - self._starts.get(index, now))
        metrics.generation_tokens.observe(self._counts.get(index, 0))
