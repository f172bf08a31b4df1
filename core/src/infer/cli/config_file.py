"""The YAML file of ``--config``: any flag of the command, by its name."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from infer.config.errors import UserError

_NOT_IN_FILE = ("help", "config")


def file_values(path: str, actions: Iterable[argparse.Action]) -> dict[str, Any]:
    """Return what the file at *path* says, by the destinations of *actions*.

    Keys may be written with - or _; ``model`` is always one. Raises UserError for a file that
    can't be read, an unknown key, and a value that the flag would not take.
    """
    known = {_key(action): action for action in actions if action.dest not in _NOT_IN_FILE}
    values: dict[str, Any] = {}
    for name, value in _loaded(path).items():
        key = str(name).replace("_", "-")
        if key not in known and key != "model":
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"--config {path}: unknown key {key!r}{hint}")
        action = known.get(key)
        wanted = _problem(action, value)
        if wanted:
            raise UserError(f"--config {path}: {key} is {value!r}, expected {wanted}")
        values[action.dest if action else key] = value
    return values


def _loaded(path: str) -> dict[Any, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"--config {path} can't be read: {' '.join(str(error).split())}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError(f"--config {path} must hold keys and values")
    return loaded


def _key(action: argparse.Action) -> str:
    return action.option_strings[0].lstrip("-") if action.option_strings else action.dest


def _problem(action: argparse.Action | None, value: Any) -> str:
    """Return what was expected instead of *value*; empty if it is right."""
    if action is None:
        return "" if isinstance(value, str) else "a text"
    if action.nargs == 0:
        return "" if isinstance(value, bool) else "true or false"
    if action.nargs == "+" or isinstance(action, argparse._AppendAction):
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return "" if texts else "a list of texts"
    if action.choices is not None and value not in action.choices:
        return f"one of {', '.join(map(str, action.choices))}"
    if action.type is int:
        return "" if type(value) is int else "a whole number"
    if action.type is float:
        return "" if type(value) in (int, float) else "a number"
    if action.type in (None, str):
        return "" if isinstance(value, str) else "a text"
    return "" if isinstance(value, dict) else "keys and values"
