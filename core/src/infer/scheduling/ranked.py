"""Requests in order of their rank: those that wait, and those that run."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

from infer.scheduling.request import Request


def _rank(request: Request) -> tuple[Any, int]:
    return request.rank


class RankedList:
    """Requests sorted by rank. Ranks are unique and constant."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def first(self) -> Request:
        return self.requests[0]

    def add(self, request: Request) -> None:
        insort(self.requests, request, key=_rank)

    def remove(self, request: Request) -> None:
        index = bisect_left(self.requests, request.rank, key=_rank)
        if index == len(self.requests) or self.requests[index] is not request:
            raise RuntimeError(f"request {request.request_id} is not in the list")
        del self.requests[index]
