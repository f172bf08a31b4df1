"""Which plugins there are, from metadata alone: nothing of a plugin is imported here."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from importlib_metadata import distributions

from infer.version import infer_version
from infer_plugin_api import ENTRY_POINT_GROUP

if TYPE_CHECKING:
    from importlib_metadata import IDistribution

log = logging.getLogger(__name__)

BUILTIN = "builtin"
_BUILTIN_MODULE = "infer.plugins.builtin"
_CORE = "infer-core"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plugin before anything of it is imported.

    target: ``"module"`` or ``"module:attr"``, or the object itself.
    problem: why it can't be used whatever its module declares; empty in the usual case.
    """

    name: str
    target: Any
    distribution: str
    version: str
    problem: str = ""

    @property
    def reference(self) -> str:
        """What is imported, as text; empty for an object."""
        return self.target if isinstance(self.target, str) else ""


def installed_plugins() -> list[Found]:
    """Return core's plugin, then the other installed ones by name.

    A distribution that is there twice (editable and installed, under lib and lib64) counts once:
    the one that is first on ``sys.path``, which is also the one that Python imports.
    """
    found: list[Found] = []
    seen: set[str] = set()
    for distribution in distributions():
        entry_points = _entry_points(distribution)
        if not entry_points:
            continue
        name, version = _identity(distribution)
        if name and _canonical(name) in seen:
            continue
        seen.add(_canonical(name))
        owner = name or f"a distribution without a name in {distribution.locate_file('')}"
        found += [
            Found(name=plugin, target=target, distribution=owner, version=version)
            for plugin, target in entry_points
        ]
    found = [_reserved(item) for item in found]
    if not any(_is_core(item) for item in found):
        found.append(
            Found(name=BUILTIN, target=_BUILTIN_MODULE, distribution=_CORE, version=infer_version())
        )
    return sorted(found, key=lambda item: (not _is_core(item), item.name, item.distribution))


def given_plugins(extra: Iterable[Any], installed: Iterable[Found]) -> list[Found]:
    """Return what the caller gave that is not installed: ``"module:attr"`` texts and objects."""
    taken = {item.name for item in installed}
    found = []
    for item in extra:
        if isinstance(item, str) and ":" not in item:
            continue
        if installed_name(item, installed) is not None:
            continue
        name = item if isinstance(item, str) else _free_name(item, taken)
        taken.add(name)
        found.append(Found(name=name, target=item, distribution="given by the caller", version="-"))
    return found


def installed_name(item: Any, installed: Iterable[Found]) -> str | None:
    """Return the name of the installed plugin that *item* is: a name, a reference or a module."""
    for plugin in installed:
        if isinstance(item, str) and item in (plugin.name, plugin.reference):
            return plugin.name
        if isinstance(item, ModuleType) and item.__name__ == plugin.reference:
            return plugin.name
    return None


def _entry_points(distribution: IDistribution) -> list[tuple[str, str]]:
    """Return name and target of a distribution's entry points; unreadable ones are logged."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except Exception as error:
        log.debug("the entry points of a distribution can't be read: %s", error)
        return []
    if ENTRY_POINT_GROUP not in text:
        return []
    try:
        selected = distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        return list(dict.fromkeys((each.name, _without_extras(each.value)) for each in selected))
    except Exception as error:
        log.warning(
            "the plugins of %s are left out: its entry_points.txt can't be read: %s",
            _identity(distribution)[0] or distribution.locate_file(""),
            error,
        )
        return []


def _without_extras(value: str) -> str:
    """Return ``"module:attr"`` of an entry point's ``module : attr [extra]``."""
    return "".join(value.partition("[")[0].split())


def _identity(distribution: IDistribution) -> tuple[str, str]:
    """Return name and version; an empty name where an interrupted pip left no metadata."""
    try:
        return distribution.metadata["Name"] or "", distribution.version or "unknown"
    except Exception as error:
        log.debug("the metadata of a distribution can't be read: %s", error)
        return "", "unknown"


def _reserved(item: Found) -> Found:
    if item.name != BUILTIN or _is_core(item):
        return item
    return replace(item, problem=f"the name {BUILTIN!r} belongs to {_CORE}")


def _is_core(item: Found) -> bool:
    return item.name == BUILTIN and _canonical(item.distribution) == _CORE


def _canonical(name: str) -> str:
    """Return a distribution's name in the form that PEP 503 compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _free_name(item: object, taken: set[str]) -> str:
    base = getattr(item, "__name__", type(item).__name__)
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
