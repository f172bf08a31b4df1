"""Finding plugins: metadata first, then the activation rules, then the declaration modules."""

from __future__ import annotations

import logging

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.events import EventRelay
from infer.plugins.found import BUILTIN, given_plugins, installed_plugins
from infer.plugins.loading import Loaded, load
from infer.plugins.registry import ACTIVE, BROKEN, PluginRecord, Registry, collisions
from infer.plugins.wishes import Wishes, wishes_of

log = logging.getLogger(__name__)


def load_plugins(activation: PluginActivation) -> Registry:
    """Return the registry of this process. A broken plugin is reported and left out.

    Raises UserError when a plugin fails that the user named, or any with ``strict``.
    """
    registry, fatal = survey(activation)
    if fatal:
        raise UserError(fatal[0])
    return registry


def survey(activation: PluginActivation) -> tuple[Registry, list[str]]:
    """Return the registry, and one line per failure that the user would not want to go on with.

    Raises UserError for a plugin name that is not installed. Other failures are logged.
    """
    installed = installed_plugins()
    given = given_plugins(activation.extra, installed)
    wishes = wishes_of(activation, installed, given)
    loaded = _settle([load(item, wishes) for item in (*installed, *given)])
    records = tuple(item.record for item in loaded)
    fatal = _report(records, wishes)
    for line in collisions(record for record in records if record.state == ACTIVE):
        log.warning("%s", line)
    relay = EventRelay()
    for item in loaded:
        for hook, listener in item.listeners:
            relay.listen(hook, item.record.name, listener)
    return Registry(records, relay), fatal


def _settle(loaded: list[Loaded]) -> list[Loaded]:
    """Apply what plugins say of each other: equal names, requires, conflicts."""
    settled = [_alone(item, loaded) for item in loaded]
    # A plugin that falls takes those along that require it, so at most one round per plugin.
    for _ in settled:
        active = {item.record.name for item in settled if item.record.state == ACTIVE}
        changed = [_beside(item, active) for item in settled]
        if changed == settled:
            break
        settled = changed
    return settled


def _alone(item: Loaded, loaded: list[Loaded]) -> Loaded:
    """Leave a plugin out whose name another distribution uses too."""
    same = [other.record for other in loaded if other.record.name == item.record.name]
    if len(same) == 1 or item.record.state != ACTIVE or item.record.name == BUILTIN:
        return item
    owners = " and ".join(f"{record.distribution} {record.version}" for record in same)
    return item.out("conflict", f"the name is used by {owners}; uninstall one of them")


def _beside(item: Loaded, active: set[str]) -> Loaded:
    if item.record.state != ACTIVE or item.info is None:
        return item
    if absent := [name for name in item.info.requires if name not in active]:
        return item.out("failed", f"requires the plugin {absent[0]!r}, which is not active")
    if clash := [name for name in item.info.conflicts if name in active]:
        return item.out(
            "conflict",
            f"can't be active beside the plugin {clash[0]!r}; "
            "leave one of them out with --disable-plugin",
        )
    return item


def _report(records: tuple[PluginRecord, ...], wishes: Wishes) -> list[str]:
    """Log one line per broken plugin; return those of plugins that were named, or all if strict."""
    fatal = []
    for record in records:
        if record.state not in BROKEN:
            continue
        message = f"{record.origin} is left out: {record.reason}"
        if _must_work(record, wishes):
            fatal.append(message)
        else:
            log.warning("%s", message)
    return fatal


def _must_work(record: PluginRecord, wishes: Wishes) -> bool:
    if wishes.activation.strict:
        return True
    if record.name == BUILTIN:
        # Core has the name; who is in conflict over it is somebody else.
        return record.state != "conflict"
    return record.name in wishes.named
