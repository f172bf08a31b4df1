"""Measure a running OpenAI-compatible server: concurrent streams over /v1/completions.

    python benchmarks/serving.py http://127.0.0.1:8000/v1 MODEL WORKLOAD_JSON [--streams 8]

Needs httpx. Prints one JSON object; times in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from itertools import pairwise

import httpx


@dataclass
class Answer:
    """One streamed answer: when it was asked, when each chunk with text came."""

    asked: float
    chunks: list[float] = field(default_factory=list)
    tokens: int = 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("workload")
    parser.add_argument("--streams", type=int, default=8)
    args = parser.parse_args()
    with open(args.workload) as file:
        work = json.load(file)["serving"]
    print(json.dumps(asyncio.run(load(args, work["texts"], work["max_tokens"]))))


async def load(args: argparse.Namespace, texts: list[str], count: int) -> dict[str, float]:
    slots = asyncio.Semaphore(args.streams)
    async with httpx.AsyncClient(base_url=args.url, timeout=600) as client:
        await ask(client, args.model, texts[0], 8, slots)
        began = time.perf_counter()
        answers = await asyncio.gather(
            *(ask(client, args.model, text, count, slots) for text in texts)
        )
        seconds = time.perf_counter() - began
    first = [answer.chunks[0] - answer.asked for answer in answers]
    gaps = [b - a for answer in answers for a, b in pairwise(answer.chunks)]
    return {
        "requests_s": round(len(answers) / seconds, 2),
        "out_tok_s": round(sum(answer.tokens for answer in answers) / seconds, 1),
        **percentiles("ttft", first),
        **percentiles("itl", gaps),
    }


async def ask(
    client: httpx.AsyncClient, model: str, text: str, count: int, slots: asyncio.Semaphore
) -> Answer:
    body = {
        "model": model,
        "prompt": text,
        "max_tokens": count,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with slots:
        answer = Answer(time.perf_counter())
        async with client.stream("POST", "completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("choices") and event["choices"][0]["text"]:
                    answer.chunks.append(time.perf_counter())
                if event.get("usage"):
                    answer.tokens = event["usage"]["completion_tokens"]
    return answer


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"{name}_p{percent}_ms": round(ordered[int((len(ordered) - 1) * percent / 100)] * 1e3, 1)
        for percent in (50, 99)
    }


if __name__ == "__main__":
    main()
