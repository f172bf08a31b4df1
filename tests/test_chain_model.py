"""The chain models say their scripts under transformers, so a failing test of ours is ours."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.chain_model import SPECS, build_chain_model, chain_model

TEXTS = {
    "alphabet": "ABCDEFGHIJKLMNOP",
    "emoji": "ok 🙂 café end",
    "eosinside": "yes no done<|turn_end|>",
    "loop": "one two three four one two three four ",
    "toolcall": '<tool_call>\n{"name": "get_weather", "arguments": {"city": '
    '"Paris \\"x\\" {é}", "days": 3}}\n</tool_call>',
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_chain_model_says_its_script_after_any_prompt(name: str, tmp_path: Path) -> None:
    path = chain_model(name, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    for prompt in ("x", "some words", chat):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=8 if name == "loop" else 20,
            pad_token_id=0,
        )
        answer = tokenizer.decode(out[0, ids.shape[1] :])
        assert answer.removesuffix("<|endoftext|>") == TEXTS[name]


def test_one_prompt_byte_is_one_token(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(chain_model("coin", tmp_path))
    assert tokenizer("x").input_ids == [ord("x")]


def test_the_coin_has_the_odds_of_its_specification(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(chain_model("coin", tmp_path), dtype=torch.float32)
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([list(b"xHTT")])).logits[0], dim=-1)
    for line in logprobs:
        assert float(line[ord("H")]) == pytest.approx(math.log(0.75), abs=1e-3)
        assert float(line[ord("T")]) == pytest.approx(math.log(0.25), abs=1e-3)


def test_a_chunk_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'AB' occurs twice"):
        build_chain_model({"chunks": ["AB", "C", "AB"]}, tmp_path)


def test_every_specification_can_be_built(tmp_path: Path) -> None:
    for spec in sorted(SPECS.glob("*.json")):
        path = chain_model(spec.stem, tmp_path)
        assert json.loads((path / "config.json").read_text())["vocab_size"] == 512
