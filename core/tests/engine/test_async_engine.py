"""An engine in a process of its own: answers, errors of the start, its death."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import psutil
import pytest

from infer.config.engine import EngineConfig
from infer.config.errors import EngineError, UserError
from infer.engine.async_engine import AsyncEngine
from infer_plugin_api.sampling import SamplingParams

Config = Callable[..., EngineConfig]
SECONDS = 60


@asynccontextmanager
async def running(config: EngineConfig) -> AsyncIterator[AsyncEngine]:
    engine = await AsyncEngine.start(config)
    try:
        yield engine
    finally:
        await engine.close()


def within_time(coroutine: object) -> None:
    asyncio.run(asyncio.wait_for(coroutine, SECONDS))  # type: ignore[arg-type]


def engine_process() -> psutil.Process:
    """The one child of this process that is an engine."""
    (found,) = [
        child
        for child in psutil.Process().children()
        if "infer.engine.process" in " ".join(child.cmdline())
    ]
    return found


async def answer(engine: AsyncEngine, prompt: str, **params: object) -> str:
    values = {"temperature": 0, "max_tokens": 20} | params
    text = ""
    async for delta in engine.generate(prompt, SamplingParams(**values)):  # type: ignore[arg-type]
        text += delta.text
    return text


def test_answers_stop_strings_aborts_and_the_end(small: Config) -> None:
    async def main() -> None:
        async with running(small("loop")) as engine:
            assert engine.info.vocab_size == 512
            together = await asyncio.gather(*(answer(engine, "x") for _ in range(5)))
            assert set(together) == {"one two three four " * 5}
            assert await answer(engine, "x", stop=["three"]) == "one two "
            await left_early(engine)
            await idle(engine)
            process = engine_process()
        assert not process.is_running()
        await engine.close()

    async def left_early(engine: AsyncEngine) -> None:
        stream = engine.generate("x", SamplingParams(max_tokens=400, temperature=0))
        async for _ in stream:
            break
        await stream.aclose()

    async def idle(engine: AsyncEngine) -> None:
        """The stopped and the left request are gone from the engine too."""
        await answer(engine, "x", max_tokens=1)
        while engine.stats.running or engine.stats.kv_blocks_used:
            await answer(engine, "x", max_tokens=1)

    within_time(main())


def test_what_the_user_can_fix_is_a_user_error_and_leaves_no_process(small: Config) -> None:
    async def main() -> None:
        with pytest.raises(UserError, match="--kv-cache-memory-bytes"):
            await AsyncEngine.start(small("loop", kv_cache_memory_bytes=1, max_model_len=64))
        with pytest.raises(UserError, match="no_such"):
            await AsyncEngine.start(small("loop", attention_backend="no_such"))

    within_time(main())
    with suppress(ValueError):
        engine_process()
        raise AssertionError("an engine process is left")


def test_every_open_request_hears_of_the_engines_death(small: Config) -> None:
    async def main() -> None:
        engine = await AsyncEngine.start(small("loop"))
        requests = [
            asyncio.create_task(answer(engine, "x", max_tokens=10_000, ignore_eos=True))
            for _ in range(3)
        ]
        while engine.stats.running < 3:
            await asyncio.sleep(0.01)
        os.kill(engine_process().pid, signal.SIGKILL)
        for ended in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(ended, EngineError)
            assert "signal 9" in str(ended)
        await asyncio.wait_for(engine.wait_dead(), 5)
        with pytest.raises(EngineError, match="signal 9"):
            await answer(engine, "x")
        await engine.close()

    within_time(main())
