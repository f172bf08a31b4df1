"""Every process loads the same plugins, or says how they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.plan import PluginPlan, mismatch, plan_of, portable
from infer.plugins.registry import Registry
from tests.plugin_site import Site

Load = Callable[..., Registry]


@pytest.fixture
def registry(site: Site, load: Load) -> Registry:
    site.install("mine", version="1.5")
    return load(only=("mine",))


def with_record(registry: Registry, **changed: str) -> Registry:
    return Registry(
        tuple(
            replace(record, **changed) if record.name == "mine" else record
            for record in registry.records
        )
    )


def test_a_plan_survives_the_way_to_another_process(registry: Registry) -> None:
    activation = PluginActivation(only=("mine",), extra=("module:plugin",), strict=True)
    plan = portable(plan_of(registry, activation))
    there = msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=PluginPlan)
    assert there == plan
    assert mismatch(there, registry) == []


def test_only_active_plugins_are_in_the_plan(registry: Registry) -> None:
    planned = plan_of(registry, PluginActivation()).plugins
    assert [(plugin.name, plugin.distribution) for plugin in planned] == [
        ("builtin", "infer-core"),
        ("mine", "infer-mine"),
    ]


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"state": "failed"}, "mine is missing"),
        (
            {"version": "1.6"},
            "mine is infer-mine 1.6 (API 1.0), the plan has infer-mine 1.5 (API 1.0)",
        ),
        (
            {"api_version": "1.1"},
            "mine is infer-mine 1.5 (API 1.1), the plan has infer-mine 1.5 (API 1.0)",
        ),
    ],
)
def test_a_difference_is_named(
    registry: Registry, changed: dict[str, str], difference: str
) -> None:
    plan = plan_of(registry, PluginActivation())
    assert mismatch(plan, with_record(registry, **changed)) == [difference]


def test_a_plugin_that_only_the_other_process_has_is_a_difference(registry: Registry) -> None:
    plan = plan_of(with_record(registry, state="disabled"), PluginActivation())
    assert mismatch(plan, registry) == ["mine is not in the plan"]


def test_a_plugin_object_can_not_leave_its_process(registry: Registry) -> None:
    plan = plan_of(registry, PluginActivation(extra=(object(),)))
    with pytest.raises(UserError, match="can't go to another process; give its name or"):
        portable(plan)
