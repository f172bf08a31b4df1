"""What plugins say of each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infer.config.errors import UserError
from infer.plugins.registry import Registry
from tests.plugin_site import PREAMBLE, Site

Load = Callable[..., Registry]


def saying(**info: tuple[str, ...]) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in info.items())
    return PREAMBLE.replace('"1.0"', f'"1.0", {fields}')


def states(registry: Registry, *names: str) -> list[str]:
    return [registry.record(name).state for name in names]


def test_what_is_required_must_be_active(site: Site, load: Load) -> None:
    site.install("a", saying(requires=("b",)))
    site.install("b")
    assert states(load(), "a", "b") == ["active", "active"]
    registry = load(disable=("b",))
    assert states(registry, "a", "b") == ["failed", "disabled"]
    assert registry.record("a").reason == "requires the plugin 'b', which is not active"


def test_a_failure_takes_along_who_requires_the_failed_one(site: Site, load: Load) -> None:
    site.install("a", saying(requires=("b",)))
    site.install("b", saying(requires=("c",)))
    site.install("c", "import no_such_module")
    site.install("d")
    assert states(load(), "a", "b", "c", "d") == ["failed", "failed", "failed", "active"]


def test_plugins_that_require_each_other_are_both_active(site: Site, load: Load) -> None:
    site.install("a", saying(requires=("b",)))
    site.install("b", saying(requires=("a",)))
    assert states(load(), "a", "b") == ["active", "active"]


def test_who_declares_a_conflict_gives_way(site: Site, load: Load) -> None:
    site.install("a", saying(conflicts=("b",)))
    site.install("b")
    registry = load()
    assert states(registry, "a", "b") == ["conflict", "active"]
    assert "can't be active beside the plugin 'b'" in registry.record("a").reason
    assert states(load(disable=("b",)), "a", "b") == ["active", "disabled"]


def test_a_conflict_of_a_plugin_that_was_asked_for_is_fatal(site: Site, load: Load) -> None:
    site.install("a", saying(conflicts=("b",)))
    site.install("b")
    with pytest.raises(UserError, match="can't be active beside the plugin 'b'"):
        load(enable=("a",))
