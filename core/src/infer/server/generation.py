"""Running a request's prompts and counting what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infer.engine.input_processor import Prompt
from infer.engine.outputs import Delta
from infer.server.calls import Call
from infer.server.responses import PromptDetails, Usage
from infer.server.state import ServerState
from infer.telemetry.meter import RequestMeter
from infer_plugin_api.sampling import SamplingParams

if TYPE_CHECKING:
    from infer.engine.async_engine import AsyncEngine

Answers = AsyncGenerator[tuple[int, Delta], None]
_BACKLOG = 64


@dataclass(frozen=True)
class Job:
    """What a request asks of the engine. Each prompt gets ``params.n`` answers."""

    prompts: Sequence[Prompt]
    params: SamplingParams
    add_special_tokens: bool

    @property
    def num_answers(self) -> int:
        return len(self.prompts) * self.params.n


class Generation:
    """One request while it runs. Answers of prompt p have the indexes p*n to p*n + n-1."""

    def __init__(self, state: ServerState, engine: AsyncEngine, job: Job, call: Call) -> None:
        self._state = state
        self._engine = engine
        self._job = job
        self._call = call
        self._prompt_tokens: dict[int, int] = {}
        self._cached_tokens: dict[int, int] = {}
        self._output_tokens: dict[int, int] = {}

    async def deltas(self) -> Answers:
        """Yield (answer's index, delta). Closing it aborts what has not ended.

        Raises ParameterError for a wrong value and EngineError when the engine fails.
        """
        job, state = self._job, self._state
        parts = [self._answers(place, prompt) for place, prompt in enumerate(job.prompts)]
        state.answers_open += job.num_answers
        try:
            async with aclosing(parts[0] if len(parts) == 1 else _merged(parts)) as merged:
                async for index, delta in merged:
                    yield index, delta
        finally:
            state.answers_open -= job.num_answers
            usage = self.usage()
            self._call.prompt_tokens = usage.prompt_tokens
            self._call.output_tokens = usage.completion_tokens

    def usage(self) -> Usage:
        """Return the counts so far; a prompt counts once however many answers it has."""
        prompt = sum(self._prompt_tokens.values())
        output = sum(self._output_tokens.values())
        cached = sum(self._cached_tokens.values())
        return Usage(prompt, output, prompt + output, PromptDetails(cached))

    async def _answers(self, place: int, prompt: Prompt) -> Answers:
        job = self._job
        meter = RequestMeter(self._state.metrics, self._call.arrival)
        stream = self._engine.generate(
            prompt,
            job.params,
            f"{self._call.unique_id}-{place}",
            add_special_tokens=job.add_special_tokens,
        )
        async with aclosing(stream):
            async for delta in stream:
                index = place * job.params.n + delta.index
                self._prompt_tokens[place] = delta.num_prompt_tokens
                if delta.index == 0:
                    self._cached_tokens[place] = delta.num_cached_tokens
                self._output_tokens[index] = delta.num_output_tokens
                meter.tokens(
                    delta.index,
                    len(delta.token_ids),
                    prompt_tokens=delta.num_prompt_tokens,
                    first_scheduled=delta.first_scheduled,
                )
                if delta.finish_reason is not None:
                    meter.finished(delta.index, delta.finish_reason)
                yield index, delta


async def _merged(parts: list[Answers]) -> Answers:
    """Yield the items of all *parts* as they come; the first error ends them all."""
    queue: asyncio.Queue[tuple[int, Delta] | Exception | None] = asyncio.Queue(_BACKLOG)

    async def pump(part: Answers) -> None:
        try:
            async with aclosing(part):
                async for item in part:
                    await queue.put(item)
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.create_task(pump(part)) for part in parts]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
