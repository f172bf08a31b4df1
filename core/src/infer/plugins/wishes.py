"""What the operator wants of each plugin: the activation rules."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.found import BUILTIN, Found, installed_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wishes:
    """An activation, held against what is installed.

    named: plugins that the operator or the caller asked for; their failure is fatal.
    """

    activation: PluginActivation
    named: frozenset[str]

    def left_out(self, name: str) -> str:
        """Say why a plugin is not wanted; empty when it is."""
        activation = self.activation
        if name == BUILTIN:
            return ""
        if name in activation.disable:
            return "disabled by the operator"
        if name in self.named:
            return ""
        if activation.only is not None:
            return "not in the list of active plugins"
        if not activation.autoload:
            return "autoload is off and nobody named it"
        return ""


def wishes_of(
    activation: PluginActivation, installed: Sequence[Found], given: Sequence[Found]
) -> Wishes:
    """Check the names in *activation*. Raises UserError for one that is not installed."""
    known = {item.name for item in installed}
    asked = [*activation.enable, *(activation.only or ())]
    asked += [item for item in activation.extra if isinstance(item, str) and ":" not in item]
    for name in asked:
        if name not in known:
            raise UserError(
                f"plugin {name!r} is not installed; "
                f"installed: {', '.join(sorted(known))}{_nearest(name, known)}"
            )
    if BUILTIN in activation.disable:
        raise UserError(f"the plugin {BUILTIN!r} can't be disabled: infer's own parts are in it")
    for name in activation.disable:
        if name not in known | {item.name for item in given}:
            hint = _nearest(name, known)
            log.warning("plugin %r, which is to be disabled, is not installed%s", name, hint)
    named = {*asked, *(item.name for item in given)}
    for item in activation.extra:
        if found := installed_name(item, installed):
            named.add(found)
    return Wishes(activation, frozenset(named))


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
