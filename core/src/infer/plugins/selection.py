"""Selection: which provider of a slot is used, and why the others are not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from infer.config.errors import UserError
from infer.plugins.registry import Registered, Registry

log = logging.getLogger(__name__)

Refusal = Callable[[Registered], "str | None"]


@dataclass(frozen=True)
class Selection:
    """The provider, why it was taken, and why the others were not (qualified name, reason)."""

    chosen: Registered
    reason: str
    refused: tuple[tuple[str, str], ...]


def select(registry: Registry, slot: str, wanted: str | None, refusal: Refusal) -> Selection:
    """Choose a provider: the wanted one, or the eligible one with the highest priority.

    refusal: says why a candidate can't be used here, or returns None. Raises UserError when the
    wanted provider is refused, or when none is left; a wanted one never falls back to another.
    An eligible one that nobody named and whose implementation can't be imported is passed over,
    with a warning.
    """
    if wanted is not None:
        chosen = registry.find(slot, wanted)
        if reason := registry.missing(chosen) or refusal(chosen):
            raise UserError(f"{slot.replace('_', ' ')} {wanted!r} can't be used: {reason}")
        return Selection(chosen, "asked for", ())
    refused: list[tuple[str, str]] = []
    for candidate in registry.providers(slot):
        reason = registry.missing(candidate) or refusal(candidate)
        reason = reason or _unloadable(registry, candidate)
        if reason is None:
            return Selection(candidate, "highest priority of those that can", tuple(refused))
        refused.append((candidate.qualified, reason))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused) or "none is installed"
    raise UserError(f"no {slot.replace('_', ' ')} provider can be used: {reasons}")


def _unloadable(registry: Registry, candidate: Registered) -> str | None:
    try:
        registry.load(candidate)
    except UserError as error:
        log.warning("%s; another provider is used", error)
        return str(error)
    return None
