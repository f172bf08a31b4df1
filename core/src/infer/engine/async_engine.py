"""AsyncEngine: the asyncio front of an engine process, for the server and ``AsyncLLM``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Self

from infer.config.engine import EngineConfig
from infer.config.errors import EngineError, UserError
from infer.engine.client import EngineProcess
from infer.engine.input_processor import InputProcessor, Prepared, Prompt
from infer.engine.messages import (
    AbortRequests,
    AddRequests,
    EngineFailed,
    EngineInfo,
    EngineStats,
    StepOutputs,
    TokenOutput,
)
from infer.engine.output_processor import AnswerStream
from infer.engine.outputs import Delta
from infer.engine.process import Launch
from infer.engine.threads import compute_threads
from infer.modeling.files import ModelFiles, announce_on_stderr, find_model
from infer.plugins.discovery import load_plugins
from infer.plugins.plan import plan_of, portable
from infer.plugins.registry import ACTIVE, Registry
from infer.text.chat import ChatTemplate, load_template
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.sampling import SamplingParams

log = logging.getLogger(__name__)

_Queue = asyncio.Queue[TokenOutput | EngineError]


class AsyncEngine:
    """Requests in, deltas out. Made by ``start``; one event loop uses all of it.

    error: why the engine died, or None. stats: of the latest step; on_stats is told each.
    """

    config: EngineConfig
    files: ModelFiles
    info: EngineInfo
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    _process: EngineProcess
    _inputs: InputProcessor
    _receiver: asyncio.Task[None]

    def __init__(self, config: EngineConfig, registry: Registry) -> None:
        self.config = config
        self.registry = registry
        self.error: str | None = None
        self.stats = EngineStats()
        self.plugin_versions = {
            record.name: record.version for record in registry.records if record.state == ACTIVE
        }
        self.on_stats: Callable[[EngineStats], None] | None = None
        self._queues: dict[str, _Queue] = {}
        self._dead = asyncio.Event()
        self._closing = False

    @classmethod
    async def start(cls, config: EngineConfig) -> Self:
        """Start the process and wait until it is ready.

        Raises UserError or ModelError for what the user can fix, EngineError otherwise.
        """
        registry = load_plugins(config.plugins)
        plan = portable(plan_of(registry, config.plugins))
        engine = cls(config, registry)
        engine._process = EngineProcess(compute_threads(config.cpu_threads), engine._on_exit)
        try:
            engine.files = await asyncio.to_thread(find_model, config, registry, announce_on_stderr)
            await engine._process.launch(Launch(config, engine.files, plan))
            engine._load_text()
            engine.info = await engine._ready()
        except BaseException:
            engine._closing = True
            await engine._process.close()
            raise
        engine._inputs = InputProcessor(
            engine.tokenizer,
            engine.files,
            registry,
            config,
            vocab_size=engine.info.vocab_size,
            max_model_len=engine.info.max_model_len,
        )
        engine._receiver = asyncio.create_task(engine._receive())
        return engine

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str = "",
        *,
        add_special_tokens: bool = True,
    ) -> AsyncGenerator[Delta, None]:
        """Yield what is new of each answer. Closing the generator aborts the request.

        Raises ParameterError for a wrong value, EngineError when the request or engine fails.
        """
        async for _, delta in self.stream(
            prompt, params, request_id, add_special_tokens=add_special_tokens
        ):
            yield delta

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str = "",
        *,
        add_special_tokens: bool = True,
    ) -> AsyncGenerator[tuple[Prepared, Delta], None]:
        """Like ``generate``, with what the input processor made of the prompt."""
        prepared = await asyncio.to_thread(
            self._inputs.prepare,
            prompt,
            params,
            request_id,
            add_special_tokens=add_special_tokens,
        )
        if self.error is not None:
            raise EngineError(self.error)
        streams = {
            child.request_id: AnswerStream(self.tokenizer, prepared, index)
            for index, child in enumerate(prepared.children)
        }
        queue: _Queue = asyncio.Queue()
        self._queues |= dict.fromkeys(streams, queue)
        try:
            await self._process.send(AddRequests(list(prepared.children)))
            while streams:
                output = await queue.get()
                if isinstance(output, EngineError):
                    raise output
                if output.error is not None:
                    streams.pop(output.request_id, None)
                    raise EngineError(output.error)
                answer = streams.get(output.request_id)
                delta = answer.push(output) if answer is not None else None
                if answer is not None and answer.finished:
                    del streams[output.request_id]
                    self._queues.pop(output.request_id, None)
                    if answer.stopped_here:
                        await self._process.send(AbortRequests([output.request_id]))
                if delta is not None:
                    yield prepared, delta
        finally:
            for child in prepared.children:
                self._queues.pop(child.request_id, None)
            if streams and self.error is None and not self._closing:
                await self._process.send(AbortRequests(list(streams)))

    async def wait_dead(self) -> None:
        """Return when the engine has died without being asked to."""
        await self._dead.wait()

    async def close(self) -> None:
        """End the engine process. May be called twice."""
        if self._closing:
            return
        self._closing = True
        self._receiver.cancel()
        with suppress(asyncio.CancelledError):
            await self._receiver
        await self._process.close()
        self.registry.events.close()

    def _load_text(self) -> None:
        folder = self.files.tokenizer_dir
        self.tokenizer = Tokenizer.load(folder)
        self.chat_template = load_template(folder, self.tokenizer, self.config.chat_template)

    async def _ready(self) -> EngineInfo:
        """Wait for the engine's first word, or its death."""
        first = asyncio.create_task(self._process.receive())
        died = asyncio.create_task(self._dead.wait())
        await asyncio.wait((first, died), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if not first.done():
            first.cancel()
            raise EngineError(self.error or "the engine process ended")
        message = first.result()
        if isinstance(message, EngineFailed):
            raise (UserError if message.user_error else EngineError)(message.reason)
        assert isinstance(message, EngineInfo)
        return message

    async def _receive(self) -> None:
        """Hand each step's news to the requests they belong to."""
        while True:
            message = await self._process.receive()
            if isinstance(message, EngineFailed):
                self._die(message.reason)
            elif isinstance(message, StepOutputs):
                self.stats = message.stats
                if self.on_stats is not None:
                    self.on_stats(message.stats)
                for output in message.outputs:
                    if queue := self._queues.get(output.request_id):
                        queue.put_nowait(output)

    def _on_exit(self, code: int) -> None:
        if not self._closing:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._die(f"the engine process ended with {how}")

    def _die(self, reason: str) -> None:
        if self.error is None:
            self.error = reason
        for queue in set(self._queues.values()):
            queue.put_nowait(EngineError(self.error))
        self._dead.set()
