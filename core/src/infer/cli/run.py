"""``infer run``: one answer, streamed to stdout."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from infer.cli.activation import add_plugin_arguments
from infer.cli.arguments import add_engine_arguments, engine_config
from infer.config.errors import UserError

if TYPE_CHECKING:
    from infer.llm import LLM
    from infer_plugin_api.sampling import SamplingParams

SUMMARY = "answer one prompt on stdout"
_MAX_TOKENS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[MODEL] PROMPT", help="a single one is the prompt; - is stdin"
    )
    parser.add_argument("--raw", action="store_true", help="complete the text, no chat template")
    add_answer_arguments(parser)
    add_engine_arguments(parser)
    add_plugin_arguments(parser)


def add_answer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how an answer is sampled."""
    group = parser.add_argument_group("answer")
    group.add_argument("--max-tokens", type=int, default=_MAX_TOKENS, help="(%(default)s)")
    group.add_argument("--temperature", type=float, help="0 always takes the likeliest token")
    group.add_argument("--top-p", type=float, help="share of the probability to draw from")


def run(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise UserError(
            f"{len(args.words)} words given; quote the prompt: infer run MODEL 'PROMPT'"
        )
    args.model, prompt = [getattr(args, "model", ""), *args.words][-2:]
    if prompt == "-":
        prompt = sys.stdin.read()
    from infer.llm import LLM

    with LLM.from_config(engine_config(args)) as llm:
        params = answer_params(args, llm)
        chat = llm.chat_template is not None and not args.raw
        asked = [{"role": "user", "content": prompt}] if chat else prompt
        for delta in llm.stream(asked, params):
            print(delta.text, end="", flush=True)
        print()
    return 0


def answer_params(args: argparse.Namespace, llm: LLM) -> SamplingParams:
    """Return the flags' values over the model's own recommendations."""
    given = {
        name: value
        for name in ("temperature", "top_p")
        if (value := getattr(args, name)) is not None
    }
    return llm.sampling_params(**given, max_tokens=args.max_tokens)
