"""Measure one engine offline: start-up, one stream, a mixed workload, a shared prefix.

    python benchmarks/offline.py infer MODEL WORKLOAD_JSON [--threads 2] [--dtype bfloat16]

Prints one JSON object. ``compare.py`` runs several engines in turn and prints ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from typing import Any

PROCESS_START = float(os.environ.get("BENCH_STARTED", time.time()))


def main() -> None:
    args = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    from engines import ENGINES

    with open(args.workload) as file:
        work = json.load(file)
    generate, version = ENGINES[args.engine](
        args.model, args.dtype, args.threads, args.prefix_cache == "on"
    )
    generate(work["single"]["prompts"], 1)
    figures: dict[str, Any] = {
        "engine": version,
        "first_token_s": round(time.time() - PROCESS_START, 2),
    }
    generate(work["offline"]["prompts"][:4], 8)
    for scenario in args.scenarios.split(","):
        figures |= SCENARIOS[scenario](generate, work)
    figures["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps(figures))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("model")
    parser.add_argument("workload")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefix-cache", choices=("on", "off"), default="off")
    parser.add_argument("--scenarios", default="single,offline,shared")
    return parser.parse_args()


def single(generate: Any, work: Any) -> dict[str, float]:
    """One stream, best of three: time to the first token, then tokens per second of decoding."""
    prompts, count = work["single"]["prompts"], work["single"]["max_tokens"]
    first = min(timed(generate, prompts, 1)[0] for _ in range(3))
    whole = min(timed(generate, prompts, count)[0] for _ in range(3))
    return {
        "single_first_token_ms": round(first * 1e3, 1),
        "single_decode_tok_s": round((count - 1) / (whole - first), 1),
    }


def offline(generate: Any, work: Any) -> dict[str, float]:
    """Everything at once: prompts of 32 to 512 tokens."""
    return throughput("offline", generate, work["offline"])


def shared(generate: Any, work: Any) -> dict[str, float]:
    """Prompts with a common beginning of 512 tokens."""
    return throughput("shared", generate, work["shared"])


def throughput(name: str, generate: Any, scenario: Any) -> dict[str, float]:
    prompts, count = scenario["prompts"], scenario["max_tokens"]
    seconds, outputs = timed(generate, prompts, count)
    generated = sum(len(output) for output in outputs)
    if generated != count * len(prompts):
        raise SystemExit(f"{name}: {generated} tokens generated, {count * len(prompts)} expected")
    total = generated + sum(len(ids) for ids in prompts)
    return {
        f"{name}_out_tok_s": round(generated / seconds, 1),
        f"{name}_total_tok_s": round(total / seconds, 1),
    }


def timed(generate: Any, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
    began = time.perf_counter()
    outputs = generate(prompts, count)
    return time.perf_counter() - began, outputs


SCENARIOS = {"single": single, "offline": offline, "shared": shared}

if __name__ == "__main__":
    main()
