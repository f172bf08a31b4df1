"""The command ``infer``: finds the command's module, runs it, turns errors into exit codes.

Exit codes: 0 done, 1 failed at run time, 2 wrong usage or input, 130 interrupted.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from infer.config.errors import EngineError, UserError
from infer_plugin_api.errors import PluginApiError
from infer_plugin_api.sampling import ParameterError

SUMMARIES = {
    "serve": "answer OpenAI-compatible HTTP requests",
    "run": "answer one prompt on stdout",
    "chat": "talk to a model in the terminal",
    "bench": "measure latency, throughput and start-up",
    "tune": "compile and tune providers for this machine",
    "plugins": "list the plugins and what they provide",
    "env": "print what a bug report needs",
}
"""Of each command, the same as its module's: ``infer --help`` imports none of them."""

COMMANDS = {name: f"infer.cli.{name}" for name in SUMMARIES}
"""Modules with ``SUMMARY``, ``add_arguments(parser)`` and ``run(args) -> int``."""


def entry() -> NoReturn:
    """Run the command line and end the process."""
    sys.exit(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. argparse's own exits raise SystemExit."""
    try:
        try:
            return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            print(end="", flush=True)
    except (UserError, PluginApiError, ParameterError) as error:
        return _fail(str(error), 2)
    except EngineError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone; Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        from infer.version import infer_version

        print(f"infer {infer_version()}")
        return 0
    if not name:
        print(_help(), file=sys.stderr)
        return 2
    if name not in COMMANDS:
        raise UserError(_unknown(name))
    return _run(name, arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    from infer.cli import console
    from infer.cli.parser import CommandParser

    console.show_warnings()
    module = importlib.import_module(COMMANDS[name])
    parser = CommandParser(prog=f"infer {name}", description=module.SUMMARY)
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(arguments))
    return code


def _help() -> str:
    width = max(map(len, SUMMARIES))
    commands = [f"  {name:{width}}  {summary}" for name, summary in SUMMARIES.items()]
    return "\n".join(
        [
            "usage: infer COMMAND [ARGUMENTS]",
            "",
            "An LLM inference engine whose parts are plugins.",
            "",
            *commands,
            "",
            "  -h, --help  this text; `infer COMMAND --help` describes one command",
            "  --version   the version of infer",
        ]
    )


def _unknown(name: str) -> str:
    if name.startswith("-"):
        return f"unknown flag {name!r} before the command; see infer --help"
    near = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown command {name!r}; there are {', '.join(COMMANDS)}{hint}"


def _fail(message: str, code: int) -> int:
    print(f"infer: error: {' '.join(message.splitlines())}", file=sys.stderr)
    return code
