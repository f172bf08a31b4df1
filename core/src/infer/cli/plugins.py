"""``infer plugins``: what is installed, what became of it, and what it provides."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from infer.cli import plugin_report as report
from infer.cli.activation import activation_of, add_plugin_arguments
from infer.config.errors import UserError
from infer.plugins.discovery import survey
from infer.plugins.registry import Registry

SUMMARY = "list the plugins and what they provide"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "show"),
        default="list",
        metavar="list | show",
        help="list them all (the default), or show one",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="to show: a plugin, a provider, or plugin:name"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--slot",
        choices=report.SLOTS,
        metavar="SLOT",
        help=f"list only this one's providers: {', '.join(report.SLOTS)}",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list with the tracebacks of broken plugins"
    )
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if (args.action == "show") != (args.name is not None):
        raise UserError(
            "infer plugins show needs the NAME of a plugin or a provider"
            if args.action == "show"
            else f"infer plugins list takes no NAME, found {args.name!r}"
        )
    registry, fatal = survey(activation_of(args))
    if args.action == "show":
        print(_shown(registry, args.name, as_json=args.json))
    else:
        slots = report.SLOTS if args.slot is None else (args.slot,)
        print(_listed(registry, slots, as_json=args.json, verbose=args.verbose))
    for line in fatal:
        print(f"infer: error: {line}", file=sys.stderr)
    return 2 if fatal else 0


def _listed(registry: Registry, slots: tuple[str, ...], *, as_json: bool, verbose: bool) -> str:
    if as_json:
        return _json(report.overview(registry, slots))
    parts = [report.plugin_table(registry.records), report.provider_table(registry, slots)]
    if verbose:
        parts += [
            f"{record.origin}:\n{record.traceback.rstrip()}"
            for record in registry.records
            if record.traceback
        ]
    return "\n\n".join(parts)


def _shown(registry: Registry, name: str, *, as_json: bool) -> str:
    """Describe the plugins called *name*, or else the providers."""
    records = [record for record in registry.records if record.name == name]
    providers = [
        provider
        for slot in report.SLOTS
        for provider in registry.providers(slot)
        if name in (provider.name, provider.qualified)
    ]
    if not records and not providers:
        known = ", ".join(record.name for record in registry.records)
        raise UserError(f"no plugin or provider is named {name!r}; plugins: {known}")
    if records and as_json:
        return _json([report.record_data(registry, record, report.SLOTS) for record in records])
    if records:
        return "\n\n".join(report.record_text(registry, record) for record in records)
    if as_json:
        return _json([report.provider_data(registry, provider) for provider in providers])
    return "\n\n".join(report.provider_text(registry, provider) for provider in providers)


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)
