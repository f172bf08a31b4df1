"""Write docs/hook-reference.md from infer_plugin_api: its hooks, descriptors and interfaces.

``--check`` writes nothing and fails when the page is not what the code says.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import infer_plugin_api
from infer_plugin_api import DESCRIPTORS, PluginInfo, Provider, hookspecs
from infer_plugin_api.ops import OPS
from tools.workspace import ROOT

PAGE = ROOT / "docs" / "hook-reference.md"
MODULES = (
    "models",
    "kv",
    "attention",
    "linear",
    "quant",
    "weights",
    "sampling",
    "scheduling",
    "sources",
    "execution",
    "platform",
    "prepare",
    "events",
    "errors",
)
"""Where interfaces and the data that crosses them are defined, in the page's order."""

DO_NOT_EDIT = "<!-- Written by `tox -e docs` from the docstrings of infer_plugin_api. -->"


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
    version = infer_plugin_api.API_VERSION
    lines = ["# Hook reference", "", DO_NOT_EDIT, "", f"Plugin API {version}.", ""]
    lines += [prose(hookspecs), ""]
    lines += ["## Every plugin", "", *described(PluginInfo), *described(Provider)]
    lines += ["## Hooks that declare providers", ""]
    for hook in hooks():
        if kind := descriptor_of(hook):
            lines += [*hook_section(hook), *described(kind, inherited=False)]
    lines += ["## Hooks that listen", ""]
    for hook in hooks():
        if not descriptor_of(hook):
            lines += hook_section(hook)
    lines += ["## Fused ops", "", prose(importlib.import_module("infer_plugin_api.ops")), ""]
    for protocol in OPS.values():
        lines += [f"### {protocol.__name__}", "", *code(protocol.__call__), prose(protocol), ""]
    for name in MODULES:
        module = importlib.import_module(f"infer_plugin_api.{name}")
        lines += [f"## `infer_plugin_api.{name}`", "", prose(module), ""]
        for kind in public_classes(module):
            lines += described(kind)
    return "\n".join(lines).rstrip() + "\n"


def hooks() -> Iterator[Callable[..., Any]]:
    """Yield the hook specifications in the order of their module."""
    for name, value in vars(hookspecs).items():
        if name.startswith("infer_") and inspect.isfunction(value):
            yield value


def descriptor_of(hook: Callable[..., Any]) -> type[Provider] | None:
    """Return the descriptor that a declaration hook returns."""
    returned = str(hook.__annotations__["return"])
    return next((kind for kind in DESCRIPTORS if f"[{kind.__name__}]" in returned), None)


def hook_section(hook: Callable[..., Any]) -> list[str]:
    """Return the lines of one hook."""
    return [f"### {hook.__name__}", "", *code(hook), prose(hook), ""]


def public_classes(module: ModuleType) -> Iterator[type[Any]]:
    """Yield the classes that *module* defines, in its order."""
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_":
            yield value


def described(kind: type[Any], *, inherited: bool = True) -> list[str]:
    """Return the lines of one class: its text, fields and methods."""
    lines = [f"### {kind.__name__}", ""]
    if slot := getattr(kind, "slot", ""):
        lines[-1:] = ["", f"Slot `{slot}`.", ""]
    lines += [prose(kind), ""]
    if dataclasses.is_dataclass(kind):
        own = vars(kind).get("__annotations__", {})
        fields = [f for f in dataclasses.fields(kind) if inherited or f.name in own]
        lines += field_table(fields)
    for name, member in vars(kind).items():
        if name[0] != "_" and inspect.isfunction(member) and member.__doc__:
            lines += [*code(member, f"{kind.__name__}."), prose(member), ""]
    return lines


def field_table(fields: list[dataclasses.Field[Any]]) -> list[str]:
    """Return a table of dataclass fields, empty where there are none."""
    if not fields:
        return []
    lines = ["| field | type | default |", "|---|---|---|"]
    for field in fields:
        kind = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{kind}` | {default(field)} |")
    return [*lines, ""]


def default(field: dataclasses.Field[Any]) -> str:
    """Return a field's default as code, or a word where it has none."""
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory()!r}`"
    return "required"


def code(function: Callable[..., Any], owner: str = "") -> list[str]:
    """Return a code block with the signature of *function*."""
    signature = re.sub(r"'([^']*)'", r"\1", str(inspect.signature(function)))
    return ["```python", f"{owner}{function.__name__}{signature}", "```", ""]


def prose(documented: Any) -> str:
    """Return a docstring as Markdown: roles and literals become code."""
    text = inspect.getdoc(documented) or ""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    if not dataclasses.is_dataclass(documented):
        return text
    fields = {field.name for field in dataclasses.fields(documented)}
    return "\n".join(listed(line, fields) for line in text.splitlines())


def listed(line: str, fields: set[str]) -> str:
    """Make a list item of a line that begins with names of fields and a colon."""
    names, colon, _ = line.partition(":")
    return f"- {line}" if colon and set(names.split(", ")) <= fields else line


if __name__ == "__main__":
    raise SystemExit(main())
