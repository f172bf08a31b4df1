"""Which plugins are active: the rules of ``--plugin``, ``--only-plugins`` and their variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infer.config.environment import env_flag


@dataclass(frozen=True, kw_only=True)
class PluginActivation:
    """What the operator said about plugins.

    enable: also activate these, opt-in ones too; a failure of theirs is fatal.
    only: the whole set besides ``builtin``; None means all installed ones.
    disable: never active; wins over everything.
    autoload: load installed plugins that nobody named.
    strict: any plugin's failure is fatal.
    extra: names, ``"module:attr"`` texts or (embedded use only) plugin objects.
    """

    enable: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    autoload: bool = True
    strict: bool = False
    extra: tuple[Any, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> PluginActivation:
        """Read ``INFER_PLUGINS``, ``INFER_DISABLE_PLUGIN_AUTOLOAD``, ``INFER_STRICT_PLUGINS``."""
        only = environ.get("INFER_PLUGINS")
        return cls(
            only=None if only is None else split_names(only),
            autoload=not env_flag("INFER_DISABLE_PLUGIN_AUTOLOAD", environ),
            strict=env_flag("INFER_STRICT_PLUGINS", environ),
        )

    def merged(
        self,
        *,
        enable: Iterable[str] = (),
        only: Iterable[str] | None = None,
        disable: Iterable[str] = (),
        strict: bool = False,
        extra: Iterable[Any] = (),
    ) -> PluginActivation:
        """Return this activation with flags added; a given *only* replaces the variable's."""
        return replace(
            self,
            enable=(*self.enable, *enable),
            only=self.only if only is None else tuple(only),
            disable=(*self.disable, *disable),
            strict=self.strict or strict,
            extra=(*self.extra, *extra),
        )


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names; blanks around names and empty parts are dropped."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
