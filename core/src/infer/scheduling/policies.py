"""The built-in scheduling policies."""

from __future__ import annotations

from infer_plugin_api.scheduling import RequestView, SchedulingPolicy


class FCFS(SchedulingPolicy):
    """First come, first served; priorities are ignored."""

    def key(self, request: RequestView) -> int:
        return request.arrival


class Priority(SchedulingPolicy):
    """Lower priority numbers first, then by arrival; urgent requests displace running ones."""

    def key(self, request: RequestView) -> tuple[int, int]:
        return (request.priority, request.arrival)

    def preempts(self, waiting: RequestView, running: RequestView) -> bool:
        return waiting.priority < running.priority
