"""Many streams with clients that leave at random: no error, no leak."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from tests.server.running import Served, parse_events, served

WORDS = "one two three four "
MEGABYTE = 1 << 20
# A pool of the default size is touched for the first time little by little, which is no leak.
POOL = ("--kv-cache-memory-bytes", str(16 * MEGABYTE))
# oneDNN keeps kernels for the numbers of rows that it has met; that cache is full by then.
_WARM_ROUNDS = 2
_ALLOWED_GROWTH = 20 * MEGABYTE


def test_200_streams_with_random_disconnects_leak_nothing(models: Callable[[str], Path]) -> None:
    """Acceptance 7, reduced"""
    with served(models("loop"), "--max-num-seqs", "32", *POOL) as server:
        soak(server, rounds=2, streams=200, max_tokens=30)


@pytest.mark.acceptance
@pytest.mark.timeout(1800)
def test_200_streams_for_many_rounds_leak_nothing(models: Callable[[str], Path]) -> None:
    """Acceptance 7"""
    with served(models("loop"), "--max-num-seqs", "32", *POOL) as server:
        soak(server, rounds=30, streams=200, max_tokens=200)


@pytest.mark.acceptance
@pytest.mark.timeout(1800)
def test_200_streams_of_a_real_model_leak_nothing(smollm2_path: Path) -> None:
    """Acceptance 7"""
    with served(
        smollm2_path, "--max-num-seqs", "32", "--kv-cache-memory-bytes", str(256 * MEGABYTE)
    ) as server:
        soak(server, rounds=3, streams=200, max_tokens=40, expected=None)


def soak(
    server: Served, *, rounds: int, streams: int, max_tokens: int, expected: str | None = WORDS
) -> None:
    """Run rounds of concurrent streams and compare the state before and after."""
    random.seed(7)
    for _ in range(_WARM_ROUNDS):
        asyncio.run(_round(server, streams, max_tokens, expected))
    idle = server.wait_idle()
    memory = _memory(server)
    for _ in range(rounds):
        asyncio.run(_round(server, streams, max_tokens, expected))
    after = server.wait_idle()
    assert after["infer_requests_running"] == after["infer_requests_waiting"] == 0
    assert after["infer_kv_cache_usage_ratio"] == idle["infer_kv_cache_usage_ratio"]
    assert after["infer_request_failure_total{engine}"] == 0
    assert after["infer_request_failure_total{disconnected}"] > 0
    grown = _memory(server) - memory
    assert grown < _ALLOWED_GROWTH, f"{grown / MEGABYTE:.0f} MB more than after the warm rounds"
    assert "Traceback" not in server.output
    assert "ERROR" not in server.output


async def _round(server: Served, streams: int, max_tokens: int, expected: str | None) -> None:
    async with server.async_http() as client:
        texts = await asyncio.gather(
            *(_ask(client, number, max_tokens) for number in range(streams))
        )
    if expected is not None:
        whole = expected * max_tokens
        assert all(whole.startswith(text) for text in texts)


async def _ask(client: httpx.AsyncClient, number: int, max_tokens: int) -> str:
    """Read a stream to its end, or leave after a random number of events."""
    leave_after = random.randrange(max_tokens) if random.random() < 0.5 else None
    body = {"prompt": f"number {number}:", "max_tokens": max_tokens, "temperature": 0}
    text, done = "", False
    async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        seen = 0
        async for line in response.aiter_lines():
            for event in parse_events([line]):
                seen += 1
                done = event.data == "[DONE]"
                text += "" if done else event.data["choices"][0]["text"]
            if leave_after is not None and seen > leave_after:
                return text
    assert done
    return text


def _memory(server: Served) -> int:
    """Bytes that the server and its children hold."""
    gc.collect()
    family = [psutil.Process(server.process.pid), *server.children()]
    return sum(member.memory_info().rss for member in family)
