"""The life of a serving process: listen, load, answer, drain, end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from infer.config.engine import EngineConfig
from infer.config.errors import EngineError
from infer.engine.async_engine import AsyncEngine
from infer.server.settings import ServerSettings

if TYPE_CHECKING:
    from infer.server.http import HttpServer
    from infer.server.state import ServerState

log = logging.getLogger(__name__)

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_WORDS_SECONDS = 2.0

Announce = Callable[[str, str], None]
"""Told (URL, model name) when the first request can be answered."""


class Lifecycle:
    """One run of the server on a socket that listens already."""

    def __init__(
        self,
        settings: ServerSettings,
        engine_config: EngineConfig,
        listener: socket.socket,
        announce: Announce,
    ) -> None:
        self.settings = settings
        self.engine_config = engine_config
        self.listener = listener
        self.announce = announce
        self.began = time.monotonic()

    async def run(self) -> int:
        """Serve until a signal or the engine's end; return the exit code.

        Raises UserError or ModelError when the engine can't be started with what was asked for,
        EngineError when it fails.
        """
        self._signalled, self._again = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        starting = asyncio.create_task(AsyncEngine.start(self.engine_config))
        # The engine's process begins to load before this one imports what only HTTP needs.
        await asyncio.sleep(0)
        self.state, http = self._http()
        serving = asyncio.create_task(http.serve(sockets=[self.listener]))
        try:
            engine = await self._started(starting)
            if engine is None:
                return INTERRUPTED
            try:
                return await self._serve(engine, serving)
            finally:
                await engine.close()
        finally:
            http.should_exit = True
            await serving

    def _http(self) -> tuple[ServerState, HttpServer]:
        from infer.server.http import http_server
        from infer.server.state import ServerState

        state = ServerState(self.settings)
        return state, http_server(state)

    def _on_signal(self, number: signal.Signals) -> None:
        """The first signal begins the drain, the second ends it."""
        log.info("received %s", signal.Signals(number).name)
        (self._again if self._signalled.is_set() else self._signalled).set()

    async def _started(self, starting: asyncio.Task[AsyncEngine]) -> AsyncEngine | None:
        """Wait for the engine; None when a signal came first."""
        await _first(starting, self._signalled.wait())
        if self._signalled.is_set():
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await (await starting).close()
            return None
        return starting.result()

    async def _serve(self, engine: AsyncEngine, serving: asyncio.Task[None]) -> int:
        self._open(engine)
        died = asyncio.create_task(engine.wait_dead())
        try:
            await _first(died, serving, self._signalled.wait())
            if serving.done():
                serving.result()
            if not died.done():
                await self._drain(died)
            if died.done():
                await self._bury(engine)
            return 0
        finally:
            died.cancel()

    def _open(self, engine: AsyncEngine) -> None:
        from infer.server.sockets import url_of
        from infer.server.state import Phase

        state = self.state
        state.engine = engine
        state.model_names = self.engine_config.served_model_names or (engine.info.model,)
        state.created = int(time.time())
        state.metrics.describe(engine.info.providers, engine.plugin_versions)
        engine.on_stats = state.metrics.observe_engine
        state.metrics.observe_engine(engine.stats)
        state.phase = Phase.RUNNING
        log.info("ready after %.1f s", time.monotonic() - self.began)
        self.announce(url_of(self.listener, self.settings), state.model_names[0])

    async def _drain(self, died: asyncio.Task[None]) -> None:
        """Let open answers end while new ones are refused; then cut off what is left."""
        from infer.server.errors import not_ready
        from infer.server.state import Phase

        calls, timeout = self.state.calls, self.settings.drain_timeout
        self.state.phase = Phase.DRAINING
        if len(calls):
            log.info("%d open requests have %g s to end", len(calls), timeout)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await _first(calls.none_left(), died, self._again.wait())
        if len(calls) and not died.done():
            log.warning("%d open requests are cut off", len(calls))
            calls.interrupt(not_ready("the server is shutting down", close=True))
            await self._last_words()

    async def _bury(self, engine: AsyncEngine) -> None:
        """Tell every open request that the engine is dead. Raises EngineError."""
        from infer.server.errors import engine_failed
        from infer.server.state import Phase

        reason = engine.error or "it ended without a word"
        self.state.failure = reason
        self.state.phase = Phase.DEAD
        failure = f"the engine has failed: {reason}"
        self.state.calls.interrupt(engine_failed(failure))
        await self._last_words()
        raise EngineError(failure)

    async def _last_words(self) -> None:
        """Give answers that were just ended the time to say so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self.state.calls.none_left()


async def _first(*waits: Awaitable[object]) -> None:
    """Wait until one of several is done. Tasks go on; coroutines are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    made = [task for task, wait in zip(tasks, waits, strict=True) if task is not wait]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in made:
            task.cancel()
