"""``infer tune``: let providers compile and tune for this machine, so that no start has to."""

from __future__ import annotations

import argparse
import sys

from infer.cli.activation import activation_of, add_plugin_arguments
from infer.plugins.discovery import load_plugins
from infer.plugins.prepare import prepare_providers

SUMMARY = "compile and tune providers for this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="do the work again even if its result is stored"
    )
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    registry = load_plugins(activation_of(args))
    done = prepare_providers(registry, _announce, force=args.force)
    if not done:
        print("no active plugin has anything to prepare")
    for preparation in done:
        if preparation.error:
            print(f"infer: error: {preparation.error}", file=sys.stderr)
        else:
            what = ", ".join(preparation.providers)
            print(f"{preparation.plugin} is ready in {preparation.seconds:.1f} s: {what}")
    return 1 if any(preparation.error for preparation in done) else 0


def _announce(line: str) -> None:
    print(line, file=sys.stderr)
