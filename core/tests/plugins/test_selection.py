"""Which provider serves a slot, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infer.config.errors import UserError
from infer.plugins.registry import PluginRecord, Registered, Registry
from infer.plugins.selection import select
from infer_plugin_api import SamplerDescriptor

Warnings = Callable[[], list[str]]


def registry_of(*providers: SamplerDescriptor) -> Registry:
    record = PluginRecord(
        name="p", distribution="infer-p", version="1.0", state="active", providers=providers
    )
    return Registry((record,))


def sampler(name: str, priority: int, implementation: str = "json:JSONDecoder", **fields: object):
    return SamplerDescriptor(name=name, priority=priority, implementation=implementation, **fields)


def refusing(*names: str) -> Callable[[Registered], str | None]:
    return lambda candidate: "too slow" if candidate.name in names else None


THREE = registry_of(sampler("low", 1), sampler("high", 9), sampler("middle", 5))


def test_the_highest_priority_that_is_not_refused_is_chosen() -> None:
    selection = select(THREE, "sampler", None, refusing("high"))
    assert selection.chosen.name == "middle"
    assert selection.refused == (("p:high", "too slow"),)


@pytest.mark.parametrize("wanted", ["low", "p:low"])
def test_what_the_user_asks_for_beats_every_priority(wanted: str) -> None:
    selection = select(THREE, "sampler", wanted, refusing())
    assert (selection.chosen.name, selection.reason) == ("low", "asked for")


def test_a_refused_wish_is_an_error_and_never_another_provider() -> None:
    with pytest.raises(UserError, match="sampler 'low' can't be used: too slow"):
        select(THREE, "sampler", "low", refusing("low"))


def test_a_wish_that_lacks_a_module_is_an_error() -> None:
    registry = registry_of(sampler("x", 0, requires_modules=("no_such_module",)), sampler("y", 0))
    with pytest.raises(UserError, match="'x' can't be used: module 'no_such_module'"):
        select(registry, "sampler", "x", refusing())
    assert select(registry, "sampler", None, refusing()).chosen.name == "y"


def test_when_all_are_refused_the_error_has_every_reason() -> None:
    with pytest.raises(
        UserError,
        match=r"no sampler provider can be used: p:high: too slow; p:middle: .*; p:low: too slow",
    ):
        select(THREE, "sampler", None, refusing("low", "middle", "high"))


def test_an_empty_slot_says_so() -> None:
    with pytest.raises(UserError, match="no linear provider can be used: none is installed"):
        select(THREE, "linear", None, refusing())


def test_an_implementation_that_can_not_be_imported_is_passed_over_with_a_warning(
    warnings: Warnings,
) -> None:
    registry = registry_of(sampler("broken", 9, "no_such_module:X"), sampler("works", 0))
    selection = select(registry, "sampler", None, refusing())
    assert selection.chosen.name == "works"
    ((refused, reason),) = selection.refused
    assert refused == "p:broken"
    assert "no_such_module" in reason
    (line,) = warnings()
    assert "plugin 'p' (infer-p 1.0)" in line
