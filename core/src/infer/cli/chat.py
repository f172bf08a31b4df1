"""``infer chat``: talk to a model in the terminal."""

from __future__ import annotations

import argparse

from infer.cli.activation import add_plugin_arguments
from infer.cli.arguments import add_engine_arguments, engine_config
from infer.cli.run import add_answer_arguments, answer_params

SUMMARY = "talk to a model in the terminal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default="", metavar="MODEL")
    parser.add_argument("--system", default="", help="the system message")
    add_answer_arguments(parser)
    add_engine_arguments(parser)
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from infer.engine.input_processor import default_sampling_params
    from infer.llm import LLM

    begin = [{"role": "system", "content": args.system}] if args.system else []
    with LLM.from_config(engine_config(args)) as llm:
        params = answer_params(args, default_sampling_params(llm.files))
        print(f"{llm.files.name} is here. /reset forgets, /exit or Ctrl-D leaves.")
        messages = list(begin)
        while (line := _ask()) not in (None, "/exit"):
            if line == "/reset":
                messages = list(begin)
            elif line:
                messages.append({"role": "user", "content": line})
                messages.append({"role": "assistant", "content": _answer(llm, messages, params)})
    return 0


def _ask() -> str | None:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return None


def _answer(llm, messages, params) -> str:  # type: ignore[no-untyped-def]
    """Print the answer as it comes; Ctrl-C ends it, not the conversation."""
    text = ""
    try:
        for delta in llm.stream(messages, params):
            text += delta.text
            print(delta.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    print()
    return text
