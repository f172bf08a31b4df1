"""Events for plugins: many listeners, off the engine's loop."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

_CAPACITY = 10_000
_MAX_ERRORS = 5

Listener = Callable[..., Any]


class EventRelay:
    """A bounded queue and one daemon thread, which starts with the first event.

    When listeners are too slow, events are dropped and counted: the engine never waits. A listener
    that raises five times is told nothing more, with its plugin's name in the log.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self.dropped = 0
        self._listeners: dict[str, list[tuple[str, Listener]]] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def listen(self, hook: str, plugin: str, listener: Listener) -> None:
        """Add a plugin's implementation of an event hook."""
        self._listeners.setdefault(hook, []).append((plugin, listener))

    def listens(self, hook: str) -> bool:
        """Whether anybody listens; lets callers skip making the event."""
        return bool(self._listeners.get(hook))

    def emit(self, hook: str, event: Any) -> None:
        """Queue an event; returns at once, and does nothing without listeners or after close."""
        if not self.listens(hook) or self._closing.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="infer-events", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((hook, event))
        except queue.Full:
            self.dropped += 1

    def close(self, timeout: float = 2.0) -> None:
        """Deliver what is queued, for at most *timeout* seconds, and stop. May be called twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout)
            left = self._queue.qsize() + self.dropped
            if left or self._thread.is_alive():
                log.warning("%d events did not reach their listeners, which were too slow", left)

    def _run(self) -> None:
        while True:
            try:
                # The wait is bounded so that a full queue can't keep close() from being seen.
                hook, event = self._queue.get(timeout=0.1)
            except queue.Empty:
                if self._closing.is_set():
                    return
                continue
            for plugin, listener in list(self._listeners[hook]):
                self._call(hook, plugin, listener, event)

    def _call(self, hook: str, plugin: str, listener: Listener, event: Any) -> None:
        try:
            listener(event=event)
        except BaseException as error:  # a listener's SystemExit must not end the thread unseen
            key = hook, plugin
            self._errors[key] = count = self._errors.get(key, 0) + 1
            log.warning(
                "plugin %r failed in %s: %s: %s",
                plugin,
                hook,
                type(error).__name__,
                error,
                exc_info=count == 1,
            )
            if count >= _MAX_ERRORS:
                self._listeners[hook].remove((plugin, listener))
                log.error("plugin %r is no longer told of %s after %d errors", plugin, hook, count)
