"""Ending a call early: by its client, by time, by the server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.types import Message

from infer.server.calls import Call, OpenCalls
from infer.server.errors import ApiError, ClientGoneError, not_ready, timed_out

LATE = timed_out(0.01)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> Message:
    await asyncio.sleep(0.01)
    return {"type": "http.disconnect"}


def call() -> Call:
    return Call("POST", "/v1/completions", "r")


def test_a_client_that_leaves_ends_the_work() -> None:
    async def test() -> None:
        with pytest.raises(ClientGoneError), call().interruptible(leaves, None, LATE):
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(test())


def test_a_timeout_ends_the_work() -> None:
    async def test() -> None:
        with pytest.raises(ApiError) as caught, call().interruptible(never, 0.01, LATE):
            await asyncio.sleep(60)
        assert caught.value is LATE

    run(test())


def test_the_first_reason_counts() -> None:
    async def test() -> None:
        one = call()
        reason = not_ready("shutting down")
        asyncio.get_running_loop().call_soon(one.interrupt, reason)
        asyncio.get_running_loop().call_soon(one.interrupt, LATE)
        with pytest.raises(ApiError) as caught, one.interruptible(never, None, LATE):
            await asyncio.sleep(60)
        assert caught.value is reason

    run(test())


def test_work_that_ends_in_time_is_left_alone() -> None:
    async def test() -> None:
        one = call()
        with one.interruptible(never, 60, LATE):
            await asyncio.sleep(0)
        one.interrupt(LATE)
        await asyncio.sleep(0.01)

    run(test())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        with call().interruptible(never, None, LATE):
            await asyncio.sleep(60)

    async def test() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test())


def test_open_calls_are_counted_until_the_last_has_ended() -> None:
    async def test() -> None:
        calls = OpenCalls()
        with calls.hold(call()), calls.hold(call()):
            assert len(calls) == 2
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(calls.none_left(), 0.01)
        await asyncio.wait_for(calls.none_left(), 1)
        assert len(calls) == 0

    run(test())
