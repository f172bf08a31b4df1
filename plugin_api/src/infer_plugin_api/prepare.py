"""Work that a provider does ahead of time: compiling, tuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PrepareContext:
    """What a provider's ``prepare`` function gets.

    announce: takes one line of progress for the user.
    force: do the work again even if its result is stored.
    """

    announce: Callable[[str], None]
    force: bool = False
