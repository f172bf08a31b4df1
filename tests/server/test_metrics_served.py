"""/metrics of a live server: gauges that fall back, counters that never do."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.running import Served, parse_metrics, served, stream

WORDS = "one two three four "
BLOCK_BYTES = 16 * 2048


@pytest.fixture(scope="module")
def small(models: Callable[[str], Path]) -> Iterator[Served]:
    """``loop`` with 40 blocks of 16 tokens for 8 requests: they don't all fit."""
    flags = ("--kv-cache-memory-bytes", str(40 * BLOCK_BYTES), "--max-num-seqs", "8")
    with served(models("loop"), *flags, "--max-model-len", "320") as server:
        yield server


def test_the_first_set_of_metrics_is_there(loop: Served) -> None:
    loop.text(max_tokens=5)
    found = loop.wait_idle()
    for name in (
        "infer_requests_running",
        "infer_requests_waiting",
        "infer_request_success_total{length}",
        "infer_request_failure_total{invalid}",
        "infer_time_to_first_token_seconds_count",
        "infer_inter_token_latency_seconds_count",
        "infer_e2e_request_latency_seconds_count",
        "infer_request_queue_time_seconds_count",
        "infer_request_prefill_time_seconds_count",
        "infer_request_decode_time_seconds_count",
        "infer_request_prompt_tokens_count",
        "infer_request_generation_tokens_count",
        "infer_prompt_tokens_total",
        "infer_generation_tokens_total",
        "infer_step_tokens_count",
        "infer_step_requests_count{prefill}",
        "infer_step_requests_count{decode}",
        "infer_step_duration_seconds_count",
        "infer_preemptions_total",
        "infer_kv_cache_usage_ratio",
        "infer_prefix_cache_queries_total",
        "infer_prefix_cache_hits_total",
    ):
        assert name in found, name
    assert any(name.startswith("infer_plugin_info{builtin:") for name in found)
    assert found["infer_step_tokens_count"] > 0


def test_counts_add_up(loop: Served) -> None:
    before = loop.wait_idle()
    loop.text("xyz", max_tokens=7)
    after = loop.wait_idle()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("infer_prompt_tokens_total") == 3
    assert grown("infer_generation_tokens_total") == 7
    assert grown("infer_request_success_total{length}") == 1
    assert grown("infer_inter_token_latency_seconds_count") == 6
    assert grown("infer_time_to_first_token_seconds_count") == 1
    assert grown("infer_request_queue_time_seconds_count") == 1


def test_gauges_fall_back_when_all_clients_leave_at_once(loop: Served) -> None:
    """MET-01"""
    idle = loop.wait_idle()

    async def leave() -> None:
        async def ask(client: httpx.AsyncClient) -> None:
            body = {"prompt": "x", "max_tokens": 1000, "stream": True}
            async with client.stream("POST", "/v1/completions", json=body) as response:
                async for _ in response.aiter_lines():
                    continue

        async with loop.async_http() as client:
            tasks = [asyncio.create_task(ask(client)) for _ in range(20)]
            await asyncio.sleep(1)
            assert parse_metrics((await client.get("/metrics")).text)["infer_requests_running"]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(leave())
    after = loop.wait_idle(5)
    for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"):
        assert after[f"infer_{name}"] == idle[f"infer_{name}"], name
    assert after["infer_request_failure_total{disconnected}"] >= 20


def test_a_client_that_leaves_a_whole_answer_ends_it_too(loop: Served) -> None:
    async def leave() -> None:
        async with loop.async_http() as client:
            body = {"prompt": "x", "max_tokens": 1900}
            with pytest.raises(httpx.ReadTimeout):
                await client.post("/v1/completions", json=body, timeout=0.5)

    before = loop.wait_idle()["infer_generation_tokens_total"]
    asyncio.run(leave())
    after = loop.wait_idle(5)
    assert after["infer_requests_running"] == 0
    assert after["infer_generation_tokens_total"] - before < 1900


async def _scrape(client: httpx.AsyncClient, found: list[dict[str, float]]) -> None:
    while True:
        found.append(parse_metrics((await client.get("/metrics")).text))
        await asyncio.sleep(0.2)


def falling_counters(scrapes: list[dict[str, float]]) -> list[str]:
    names = [n for n in scrapes[0] if "_total" in n or n.split("{")[0].endswith(("_count", "_sum"))]
    return [
        name
        for name in names
        for before, after in itertools.pairwise(scrapes)
        if after[name] < before[name]
    ]


def test_one_request_id_for_many_requests_mixes_nothing_up(small: Served) -> None:
    """SCH-03 and MET-03: duplicate ids, aborts and preemptions, scraped all the time"""
    header = {"X-Request-Id": "same"}
    body = {"prompt": "x", "max_tokens": 200, "request_id": "same"}

    async def leave_early(client: httpx.AsyncClient) -> None:
        fields = body | {"stream": True}
        async with client.stream("POST", "/v1/completions", json=fields, headers=header) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_lines():
                return

    async def test() -> list[dict[str, float]]:
        scrapes: list[dict[str, float]] = []
        async with small.async_http() as client:
            scraping = asyncio.create_task(_scrape(client, scrapes))
            for _ in range(5):
                pair = await asyncio.gather(
                    *(stream(client, body, headers=header) for _ in range(4)), leave_early(client)
                )
                again = await stream(client, body, headers=header)
                for answer in (*pair[:4], again):
                    assert answer.text == WORDS * 50
                    assert answer.done
            scraping.cancel()
        return scrapes

    scrapes = asyncio.run(test())
    after = small.wait_idle()
    assert falling_counters([*scrapes, after]) == []
    assert after["infer_requests_running"] == 0
    assert after["infer_preemptions_total"] > 0
    assert "Counters can only be incremented" not in small.output


def test_a_prompt_that_never_fits_is_refused_and_blocks_nobody(
    models: Callable[[str], Path],
) -> None:
    """SCH-01: room for 256 tokens, a model length of 2048"""
    flags = ("--kv-cache-memory-bytes", str(16 * BLOCK_BYTES))
    with served(models("loop"), *flags) as server:

        async def test() -> tuple[Any, Any, float]:
            async with server.async_http() as client:
                began = time.monotonic()
                big = client.post("/v1/completions", json={"prompt": [120] * 600})
                little = client.post("/v1/completions", json={"prompt": [120] * 10})
                answers = await asyncio.gather(big, little)
                return *answers, time.monotonic() - began

        big, little, seconds = asyncio.run(test())
        assert big.status_code == 400
        assert little.status_code == 200
        assert seconds < 5
        assert server.wait_idle()["infer_requests_waiting"] == 0


def test_a_full_queue_is_a_429_that_says_when_to_come_back(models: Callable[[str], Path]) -> None:
    with served(models("loop"), "--max-num-seqs", "2", "--max-queue", "2") as server:

        async def test() -> list[httpx.Response]:
            async with server.async_http() as client:
                body = {"prompt": "x", "max_tokens": 300}
                asks = (client.post("/v1/completions", json=body) for _ in range(12))
                return list(await asyncio.gather(*asks))

        answers = asyncio.run(test())
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) == 8
        assert all(answer.headers["retry-after"] == "1" for answer in refused)
        assert [answer.status_code for answer in answers].count(200) == 4
        assert server.wait_idle()["infer_request_failure_total{overloaded}"] == 8


def test_an_answer_that_takes_too_long_is_ended(models: Callable[[str], Path]) -> None:
    with served(models("loop"), "--request-timeout", "0.3") as server:
        whole = server.complete(max_tokens=1900)
        assert whole.status_code == 504
        assert whole.json()["error"]["code"] == "request_timeout"

        async def test() -> Any:
            async with server.async_http() as client:
                return await stream(client, {"prompt": "x", "max_tokens": 1900})

        answer = asyncio.run(test())
        assert answer.error["code"] == "request_timeout"
        assert not answer.done
        assert server.wait_idle()["infer_requests_running"] == 0
