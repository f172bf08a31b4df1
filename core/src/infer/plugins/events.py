"""Event hooks, off the engine loop."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

_CAPACITY = 1024
_MAX_ERRORS = 5
Listener = Callable[..., Any]


class EventRelay:
    """Calls listeners on a thread of its own; a full queue drops events and counts them.

    A listener that raises five times is disabled, with its name in the log.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._listeners: dict[str, list[tuple[str, Listener]]] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._queue: queue.Queue[tuple[str, Any] | None] = queue.Queue(_CAPACITY)
        self._thread: threading.Thread | None = None

    def listen(self, hook: str, plugin: str, listener: Listener) -> None:
        """Add a plugin's implementation of an event hook."""
        self._listeners.setdefault(hook, []).append((plugin, listener))

    def emit(self, hook: str, event: Any) -> None:
        """Queue an event; returns at once and costs nothing without listeners."""
        if hook not in self._listeners:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="infer-events", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((hook, event))
        except queue.Full:
            self.dropped += 1

    def close(self, timeout: float = 2.0) -> None:
        """Deliver what is queued, for at most *timeout* seconds, and stop."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join(timeout)
        if self.dropped:
            log.warning("%d events were dropped: listeners were too slow", self.dropped)
        self._thread = None

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            hook, event = item
            for plugin, listener in list(self._listeners[hook]):
                self._call(hook, plugin, listener, event)

    def _call(self, hook: str, plugin: str, listener: Listener, event: Any) -> None:
        try:
            listener(event=event)
        except Exception:
            key = hook, plugin
            self._errors[key] = self._errors.get(key, 0) + 1
            log.exception("plugin %r failed in %s", plugin, hook)
            if self._errors[key] >= _MAX_ERRORS:
                self._listeners[hook].remove((plugin, listener))
                log.error(
                    "plugin %r is no longer told of %s after %d errors", plugin, hook, _MAX_ERRORS
                )
