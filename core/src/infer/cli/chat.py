"""``infer chat``: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import TYPE_CHECKING

from infer.cli.activation import add_plugin_arguments
from infer.cli.arguments import add_engine_arguments, engine_config
from infer.cli.run import add_answer_arguments, answer_params
from infer.config.errors import UserError
from infer_plugin_api.sampling import ParameterError, SamplingParams

if TYPE_CHECKING:
    from infer.llm import LLM

SUMMARY = "talk to a model in the terminal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default="", metavar="MODEL")
    parser.add_argument("--system", default="", help="the system message")
    add_answer_arguments(parser)
    add_engine_arguments(parser)
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from infer.llm import LLM

    begin = [{"role": "system", "content": args.system}] if args.system else []
    with LLM.from_config(engine_config(args)) as llm:
        params = answer_params(args, llm)
        if llm.chat_template is None:
            raise UserError(
                f"{llm.files.name} has no chat template; give one with --chat-template FILE, or "
                "complete text with infer run --raw"
            )
        print(f"{llm.files.name} is here. /reset forgets, /exit or Ctrl-D leaves.")
        messages = list(begin)
        while (line := _ask()) not in (None, "/exit"):
            if line == "/reset":
                messages = list(begin)
            elif line:
                asked = [*messages, {"role": "user", "content": line}]
                try:
                    answer = _answer(llm, asked, params)
                except (ParameterError, UserError) as error:
                    print(f"infer: {error}; /reset begins anew", file=sys.stderr)
                else:
                    messages = [*asked, {"role": "assistant", "content": answer}]
    return 0


def _ask() -> str | None:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return None


def _answer(llm: LLM, messages: list[dict[str, str]], params: SamplingParams) -> str:
    """Print the answer as it comes; Ctrl-C ends it, not the conversation."""
    text = ""
    with _interruption() as interrupted, closing(llm.stream(messages, params)) as deltas:
        for delta in deltas:
            text += delta.text
            print(delta.text, end="", flush=True)
            if interrupted.is_set():
                print(" [stopped]", end="")
                break
    print()
    return text


@contextmanager
def _interruption() -> Iterator[Event]:
    """Collect Ctrl-C in an event: an exception in the middle of a step would break the engine."""
    interrupted = Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
