"""Which platform this engine runs on."""

from __future__ import annotations

from infer.plugins.registry import Registered, Registry
from infer.plugins.selection import select
from infer_plugin_api.platform import Platform


def choose_platform(registry: Registry, wanted: str | None) -> tuple[Registered, Platform]:
    """Return the wanted platform, or the available one with the highest priority.

    Raises UserError when the wanted one is not available: an engine that quietly ran somewhere
    else would be worse than none.
    """
    made: dict[Registered, Platform] = {}

    def refusal(candidate: Registered) -> str | None:
        made[candidate] = platform = registry.load(candidate)()
        reason: str | None = platform.unavailable()
        return reason

    chosen = select(registry, "platform", wanted, refusal).chosen
    return chosen, made[chosen]
