"""Scheduling policies: they order and pick victims; the scheduler does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol


class RequestView(Protocol):
    """What a policy may know of a request.

    arrival: sequence number of arrival, unique and increasing. priority: lower is more urgent.
    """

    @property
    def request_id(self) -> str: ...
    @property
    def arrival(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def num_computed_tokens(self) -> int: ...


class SchedulingPolicy(ABC):
    """Decides who comes first. Called once per waiting request and on memory pressure."""

    @abstractmethod
    def key(self, request: RequestView) -> Any:
        """Return the sort key of a waiting request; the smallest is admitted first.

        Must not change while the request waits. Ties are broken by arrival.
        """

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Choose who is preempted when memory runs out; the default is the last in key order."""
        return max(running, key=lambda request: (self.key(request), request.arrival))

    def preempts(self, waiting: RequestView, running: RequestView) -> bool:
        """Say whether *waiting* may take the slot of *running* when all slots are taken."""
        return False
