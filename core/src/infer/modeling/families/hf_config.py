"""Reading a Hugging Face ``config.json``, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_plugin_api.errors import ModelError


class HFConfig:
    """A config's fields with their types checked. Its methods take null for absent.

    Every method raises ModelError naming the field, its value and what was expected, also when
    a field without a default is absent.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> Any:
        """Return a field as it stands, None when absent."""
        return self._fields.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a positive integer."""
        value = self._value(name, default, "a positive integer")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(name, "a positive integer")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive number."""
        value = self._value(name, default, "a positive number")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise self.wrong(name, "a positive number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self._value(name, default, "true or false")
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of several words."""
        value = self._value(name, default, "a word")
        if value not in allowed:
            raise self.wrong(name, f"one of {', '.join(allowed)}")
        return str(value)

    def part(self, name: str) -> HFConfig:
        """Return the fields of an object, none when it is absent."""
        value = self.get(name) or {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return HFConfig(value)

    def names(self) -> tuple[str, ...]:
        """Return the fields that are not null, in the file's order."""
        return tuple(name for name, value in self._fields.items() if value is not None)

    def wrong(self, name: str, expected: str) -> ModelError:
        """Return the error for a field whose value is not what was *expected*."""
        return ModelError(f"config.json: {name} is {self.get(name)!r}, expected {expected}")

    def _value(self, name: str, default: Any, expected: str) -> Any:
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"config.json has no {name}, expected {expected}")
        return value
