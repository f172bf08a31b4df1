"""What all routes share: settings, engine, open calls, metrics."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from infer.server.calls import OpenCalls
from infer.server.errors import ApiError, not_ready, overloaded
from infer.server.settings import ServerSettings
from infer.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from infer.engine.async_engine import AsyncEngine


class Phase(Enum):
    """Where the server stands; it only goes down this list."""

    STARTING = "the model is being loaded"
    RUNNING = "running"
    DRAINING = "the server is shutting down"
    DEAD = "the engine has failed"


@dataclass
class ServerState:
    """Written by the lifecycle, read by the routes.

    model_names: what clients may call the model; the first is used in answers without a name.
    created: when the server got ready, seconds since 1970. answers_open: that the engine owes.
    """

    settings: ServerSettings
    metrics: Metrics = field(default_factory=Metrics)
    calls: OpenCalls = field(default_factory=OpenCalls)
    phase: Phase = Phase.STARTING
    engine: AsyncEngine | None = None
    model_names: tuple[str, ...] = ()
    created: int = 0
    failure: str = ""
    answers_open: int = 0

    def ready_engine(self) -> AsyncEngine:
        """Return the engine. Raises ApiError while the server takes no requests."""
        if self.phase is Phase.RUNNING and self.engine is not None:
            return self.engine
        raise self.refusal()

    def refusal(self) -> ApiError:
        """Why nothing is answered now."""
        message = f"{self.phase.value}: {self.failure}" if self.failure else self.phase.value
        return not_ready(message, close=self.phase in (Phase.DRAINING, Phase.DEAD))

    def check_queue(self) -> None:
        """Raise ApiError 429 when too many answers wait already."""
        engine = self.ready_engine()
        waiting = max(engine.stats.waiting, self.answers_open - engine.info.max_num_seqs)
        if waiting >= self.settings.max_queue:
            raise overloaded(waiting, self.settings.max_queue)


def key_digests(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the keys' hashes: the server keeps and compares only those."""
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)
