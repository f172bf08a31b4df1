"""Write docs/command-reference.md from the parsers of ``infer``.

``--check`` writes nothing and fails when the page is not what the code says.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from infer.cli.main import COMMANDS
from infer.cli.parser import CommandParser
from tools.workspace import ROOT

PAGE = ROOT / "docs" / "command-reference.md"
DO_NOT_EDIT = "<!-- Written by `tox -e docs` from the parsers of infer. -->"


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        print(f"{PAGE.relative_to(ROOT)} is not what the code says; run: tox -e docs")
        return 1
    return 0


def page() -> str:
    """Return the whole page."""
    lines = ["# Command reference", "", DO_NOT_EDIT, ""]
    lines += [
        "`python -m infer` is the same program as `infer`. `infer COMMAND --help` shows this",
        "",
    ]
    for name, module in COMMANDS.items():
        lines += [f"## infer {name}", "", sentence(importlib.import_module(module).SUMMARY), ""]
        lines += described(parser_of(name))
    return "\n".join(lines).rstrip() + "\n"


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    module = importlib.import_module(COMMANDS[name])
    parser = CommandParser(prog=f"infer {name}", description=module.SUMMARY)
    module.add_arguments(parser)
    return parser


def described(parser: argparse.ArgumentParser) -> list[str]:
    """Return tables of a parser's arguments by group, then those of its subcommands."""
    lines: list[str] = []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if shown(action)]
        if not actions:
            continue
        lines += [f"*{group.title}*", "", "| argument | meaning |", "|---|---|"]
        lines += [row(parser, action) for action in actions]
        lines.append("")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                lines += [f"### {sub.prog}", "", sentence(sub.description or ""), ""]
                lines += described(sub)
    return lines


def sentence(text: str) -> str:
    """Return a summary as a sentence."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def shown(action: argparse.Action) -> bool:
    """Whether an argument has a row: not ``--help``, subcommands or what is hidden."""
    hidden = argparse.SUPPRESS in (action.help, action.dest)
    return not hidden and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return one argument's row."""
    formatter = parser._get_formatter()
    name = ", ".join(action.option_strings)
    if not isinstance(action, argparse.BooleanOptionalAction):
        default = action.dest.upper() if name else action.dest
        name = f"{name} {formatter._format_args(action, default)}".strip()
    text = formatter._expand_help(action) if action.help else ""
    return "| `{}` | {} |".format(*(cell.replace("|", "\\|") for cell in (name, text)))


if __name__ == "__main__":
    raise SystemExit(main())
