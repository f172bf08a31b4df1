"""The open calls: what each is, and the one way to end one early."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import Receive

from infer.server.errors import ClientGoneError


@dataclass(eq=False)
class Call:
    """One HTTP request from its first byte to the end of its answer.

    request_id: of the header, the client's own if it sent one. unique_id: never used twice.
    status: 0 until the answer begins. The token counts are for the access log.
    """

    method: str
    path: str
    request_id: str
    unique_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrival: float = field(default_factory=time.time)
    status: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    _task: asyncio.Task[object] | None = None
    _error: Exception | None = None

    def interrupt(self, error: Exception) -> None:
        """End the work in :meth:`interruptible` with *error*; later calls change nothing."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    @contextmanager
    def interruptible(
        self, receive: Receive, timeout: float | None, late: Exception
    ) -> Iterator[None]:
        """Let the client's leaving, a timeout in seconds or the server's end stop what is inside.

        Raises ClientGoneError, *late* or the error given to :meth:`interrupt`.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        watcher = asyncio.create_task(self._watch(receive))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout, self.interrupt, late) if timeout is not None else None
        try:
            yield
        except asyncio.CancelledError:
            if self._error is None:
                raise
            task.uncancel()
            raise self._error from None
        finally:
            self._task = None
            watcher.cancel()
            if timer is not None:
                timer.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self.interrupt(ClientGoneError())


class OpenCalls:
    """Every call that has not ended."""

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def hold(self, call: Call) -> Iterator[None]:
        """Count *call* as open inside the block."""
        self._calls.add(call)
        self._none.clear()
        try:
            yield
        finally:
            self._calls.discard(call)
            if not self._calls:
                self._none.set()

    def interrupt(self, error: Exception) -> None:
        """End every call with *error*."""
        for call in list(self._calls):
            call.interrupt(error)

    async def none_left(self) -> None:
        """Wait until no call is open."""
        await self._none.wait()
