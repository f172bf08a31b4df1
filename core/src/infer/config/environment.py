"""Environment variables, parsed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from infer.config.errors import UserError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def env_flag(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return the boolean variable *name*; unset is False. Raises UserError on other words."""
    text = environ.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UserError(f"{name}={environ[name]!r} is not a boolean; use 1 or 0")
