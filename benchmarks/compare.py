"""Run engines in turn on one workload and print their figures and ratios to the first.

    python benchmarks/compare.py MODEL WORKLOAD_JSON infer=.venv/bin/python vllm=PATH/python

Each engine runs in its own Python, in a fresh process, alone on the machine; rounds alternate so
that a noisy minute hits all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

OFFLINE = Path(__file__).with_name("offline.py")


def main() -> None:
    args = arguments()
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for spec in args.engines:
            name, _, python = spec.partition("=")
            command = [python, str(OFFLINE), name, args.model, args.workload, *args.rest]
            environment = dict(os.environ, BENCH_STARTED=repr(time.time()))
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            runs.setdefault(name, []).append(figures(done.stdout))
            print(json.dumps(runs[name][-1]), flush=True)
    table(runs)


def figures(output: str) -> dict[str, float]:
    """The JSON object that offline.py printed; engines print lines of their own around it."""
    found: dict[str, float] = json.loads(
        next(line for line in reversed(output.splitlines()) if line.startswith("{"))
    )
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("workload")
    parser.add_argument("engines", nargs="+", help="NAME=PYTHON; the first is the base of ratios")
    parser.add_argument("--rounds", type=int, default=1)
    args, args.rest = parser.parse_known_args()
    return args


def table(runs: dict[str, list[dict[str, float]]]) -> None:
    """One line per figure: each engine's median, and the first engine's ratio to it."""
    first = next(iter(runs))
    print(f"{'figure':26}" + "".join(f"{runs[name][0]['engine']!s:>28}" for name in runs))
    for figure in (key for key in runs[first][0] if key != "engine"):
        medians = {name: statistics.median(run[figure] for run in runs[name]) for name in runs}
        cells = [
            f"{value:>18.1f} ({medians[first] / value:5.2f} x)" if value else f"{value:>28.1f}"
            for value in medians.values()
        ]
        print(f"{figure:26}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
