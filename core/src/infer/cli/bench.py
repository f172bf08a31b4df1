"""``infer bench``: figures of this machine, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from infer.cli.activation import activation_flags, add_plugin_arguments
from infer.cli.arguments import add_engine_arguments, engine_config, engine_flags
from infer.config.errors import EngineError

if TYPE_CHECKING:
    from infer.llm import LLM

SUMMARY = "measure latency, throughput and start-up"
_PORT = 18999
_START_SECONDS = 600


@dataclass(frozen=True)
class Figure:
    """One row of the result."""

    name: str
    value: float
    unit: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, summary in (
        ("latency", "one batch at a time: time to first token, time per token"),
        ("throughput", "many requests at once: tokens per second"),
        ("startup", "from the command to a server that answers"),
    ):
        sub = kinds.add_parser(kind, help=summary, description=summary)
        sub.add_argument("model", nargs="?", default="", metavar="MODEL")
        sub.add_argument("--json", action="store_true", help="print JSON instead of a table")
        if kind == "startup":
            sub.add_argument("--runs", type=int, default=3, help="starts to measure")
            sub.add_argument("--port", type=int, default=_PORT, help="port of the server")
        else:
            sub.add_argument("--input-len", type=int, default=128, help="prompt tokens")
            sub.add_argument("--output-len", type=int, default=64, help="generated tokens")
        if kind == "latency":
            sub.add_argument("--batch-size", type=int, default=1, help="requests of a batch")
            sub.add_argument("--runs", type=int, default=5, help="batches to measure")
        if kind == "throughput":
            sub.add_argument("--num-prompts", type=int, default=64, help="requests in all")
        add_engine_arguments(sub)
        add_plugin_arguments(sub)


def run(args: argparse.Namespace) -> int:
    figures = KINDS[args.kind](args)
    if args.json:
        print(json.dumps({figure.name: figure.value for figure in figures}))
        return 0
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        print(f"{figure.name:{width}}  {figure.value:10.2f} {figure.unit}")
    return 0


def latency(args: argparse.Namespace) -> list[Figure]:
    with _engine(args) as llm:
        prompts = _prompts(args.batch_size, args.input_len, llm)
        _timed(llm, prompts, 2)
        first = [_timed(llm, prompts, 1) for _ in range(args.runs)]
        whole = [_timed(llm, prompts, args.output_len) for _ in range(args.runs)]
    per_token = [
        (total - statistics.median(first)) / max(1, args.output_len - 1) for total in whole
    ]
    return [
        Figure("first_token_ms", statistics.median(first) * 1e3, "ms (median)"),
        Figure("request_ms", statistics.median(whole) * 1e3, "ms (median)"),
        Figure("per_token_ms", statistics.median(per_token) * 1e3, "ms (median)"),
        Figure("decode_tok_s", args.batch_size / statistics.median(per_token), "tokens/s"),
    ]


def throughput(args: argparse.Namespace) -> list[Figure]:
    with _engine(args) as llm:
        prompts = _prompts(args.num_prompts, args.input_len, llm)
        _timed(llm, prompts[:4], 2)
        seconds = _timed(llm, prompts, args.output_len)
    generated = args.num_prompts * args.output_len
    total = generated + args.num_prompts * args.input_len
    return [
        Figure("seconds", seconds, "s"),
        Figure("requests_s", args.num_prompts / seconds, "requests/s"),
        Figure("output_tok_s", generated / seconds, "tokens/s"),
        Figure("total_tok_s", total / seconds, "tokens/s"),
    ]


def startup(args: argparse.Namespace) -> list[Figure]:
    command = [sys.executable, "-m", "infer", "serve", *filter(None, [args.model])]
    command += ["--port", str(args.port), *engine_flags(args), *activation_flags(args)]
    runs = [_start(command, f"http://127.0.0.1:{args.port}") for _ in range(args.runs)]
    return [
        Figure("ready_s", statistics.median(ready for ready, _ in runs), "s (median)"),
        Figure("first_token_s", statistics.median(first for _, first in runs), "s (median)"),
    ]


KINDS: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "latency": latency,
    "throughput": throughput,
    "startup": startup,
}


def _engine(args: argparse.Namespace) -> LLM:
    from infer.llm import LLM

    return LLM.from_config(engine_config(args))


def _prompts(count: int, length: int, llm: LLM) -> list[dict[str, Any]]:
    """Random ids: every prompt differs, so the prefix cache has nothing to give."""
    rng = random.Random(0)
    vocab = llm.info.vocab_size
    return [{"prompt_token_ids": rng.choices(range(vocab), k=length)} for _ in range(count)]


def _timed(llm: LLM, prompts: list[dict[str, Any]], tokens: int) -> float:
    from infer import SamplingParams

    began = time.perf_counter()
    llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True))
    return time.perf_counter() - began


def _start(command: list[str], url: str) -> tuple[float, float]:
    """Start a server; return seconds until it is ready and until a first token came."""
    began = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not _answers(f"{url}/ready"):
            if server.poll() is not None or time.monotonic() - began > _START_SECONDS:
                stderr = server.stderr.read() if server.poll() is not None and server.stderr else ""
                raise EngineError(f"the server did not start: {stderr.strip()[-500:]}")
            time.sleep(0.02)
        ready = time.monotonic() - began
        body = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
        request = urllib.request.Request(
            f"{url}/v1/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        return ready, time.monotonic() - began
    finally:
        server.terminate()
        server.communicate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
