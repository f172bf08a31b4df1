"""Who is active: flags, variables and what the caller gives."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.registry import Registry
from infer_plugin_api import PluginInfo, SamplerDescriptor, hookimpl
from tests.plugin_site import PREAMBLE, Site, sampler

Load = Callable[..., Registry]
Warnings = Callable[[], list[str]]

OPT_IN = PREAMBLE.replace('"1.0"', '"1.0", opt_in=True')


class Calm:
    """A plugin object."""

    infer_plugin = PluginInfo(api_version="1.0")

    def __init__(self, name: str = "calm") -> None:
        self.name = name

    @hookimpl
    def infer_samplers(self) -> list[SamplerDescriptor]:
        return [SamplerDescriptor(name=self.name, implementation="nowhere:Nothing")]


@pytest.fixture(autouse=True)
def two(site: Site) -> None:
    site.install("one")
    site.install("other")
    site.install("effect", OPT_IN)


def active(registry: Registry) -> set[str]:
    """Return who is active of the plugins that these tests install, and core."""
    known = {"builtin", "one", "other", "effect"}
    return {record.name for record in registry.records if record.state == "active"} & known


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"one", "other"}),
        ({"only": ()}, set()),
        ({"only": ("one",)}, {"one"}),
        ({"only": ("builtin", "other")}, {"other"}),
        ({"only": ("one",), "enable": ("other",)}, {"one", "other"}),
        ({"only": ("effect",)}, {"effect"}),
        ({"enable": ("effect",)}, {"one", "other", "effect"}),
        ({"autoload": False}, set()),
        ({"autoload": False, "enable": ("one",)}, {"one"}),
        ({"autoload": False, "extra": ("other",)}, {"other"}),
        ({"only": (), "extra": ("effect",)}, {"effect"}),
        ({"disable": ("one",)}, {"other"}),
        ({"disable": ("one",), "enable": ("one",), "only": ("one",)}, set()),
    ],
)
def test_core_and_these_are_active(
    load: Load, fields: dict[str, object], expected: set[str]
) -> None:
    assert active(load(**fields)) == {"builtin"} | expected


def test_what_is_left_out_says_why_and_warns_nobody(load: Load, warnings: Warnings) -> None:
    registry = load(disable=("one",))
    assert registry.record("one").state == "disabled"
    assert registry.record("one").reason == "disabled by the operator"
    assert registry.record("effect").state == "opt-in"
    assert "--plugin effect" in registry.record("effect").reason
    assert not warnings()


def test_a_disabled_plugin_is_not_imported(site: Site, load: Load) -> None:
    site.install("bomb", "raise AssertionError('imported')")
    assert load(disable=("bomb",)).record("bomb").state == "disabled"
    assert load(only=("one",)).record("bomb").state == "disabled"


@pytest.mark.parametrize("field", ["enable", "only", "extra"])
def test_a_name_that_is_not_installed_is_an_error_with_the_nearest(load: Load, field: str) -> None:
    with pytest.raises(UserError, match=r"'othr' is not installed; .*did you mean 'other'\?"):
        load(**{field: ("othr",)})


def test_disabling_what_is_not_installed_is_only_a_warning(load: Load, warnings: Warnings) -> None:
    assert active(load(disable=("othr",))) == {"builtin", "one", "other"}
    assert any("'othr'" in line and "did you mean 'other'?" in line for line in warnings())


def test_core_itself_can_not_be_disabled(load: Load) -> None:
    with pytest.raises(UserError, match="'builtin' can't be disabled"):
        load(disable=("builtin",))


def test_a_text_with_a_colon_is_imported(site: Site, load: Load) -> None:
    site.write(
        "loose_module.py",
        "class plugin:\n    from infer_plugin_api import PluginInfo\n"
        "    infer_plugin = PluginInfo(api_version='1.0')\n",
    )
    record = load(only=(), extra=("loose_module:plugin",)).record("loose_module:plugin")
    assert (record.state, record.distribution) == ("active", "given by the caller")


def test_an_object_is_a_plugin_too_and_so_are_two_of_a_class(load: Load) -> None:
    registry = load(only=(), extra=(Calm(), Calm("calmer")))
    assert registry.find("sampler", "Calm:calm").plugin == "Calm"
    assert registry.find("sampler", "calmer").plugin == "Calm-2"


def test_an_installed_plugin_that_is_also_given_is_loaded_once(
    site: Site, load: Load, warnings: Warnings
) -> None:
    module = site.install("given", OPT_IN + sampler("calm"), entry_point="given_module")
    by_name = load(extra=("given",))
    by_module = load(extra=(importlib.import_module(module),))
    for registry in (by_name, by_module):
        assert registry.find("sampler", "calm").qualified == "given:calm"
    assert not warnings()


def test_an_installed_reference_that_is_also_given_is_loaded_once(site: Site, load: Load) -> None:
    site.install("held", OPT_IN, entry_point="held_module:infer_held")
    site.write("held_module.py", "import sys\n" + OPT_IN + "infer_held = sys.modules[__name__]\n")
    registry = load(extra=("held_module:infer_held",))
    assert [record.state for record in registry.records if record.name == "held"] == ["active"]
    assert "held_module:infer_held" not in [record.name for record in registry.records]


@pytest.mark.parametrize("given", [object(), "no_such_module:plugin"])
def test_a_given_plugin_that_fails_is_fatal(load: Load, given: object) -> None:
    with pytest.raises(UserError, match=r"\(given by the caller -\) is left out: "):
        load(extra=(given,))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, PluginActivation()),
        ({"INFER_PLUGINS": ""}, PluginActivation(only=())),
        ({"INFER_PLUGINS": " a, b ,"}, PluginActivation(only=("a", "b"))),
        ({"INFER_DISABLE_PLUGIN_AUTOLOAD": "1"}, PluginActivation(autoload=False)),
        ({"INFER_DISABLE_PLUGIN_AUTOLOAD": "0"}, PluginActivation()),
        ({"INFER_STRICT_PLUGINS": "yes"}, PluginActivation(strict=True)),
        ({"INFER_STRICT_PLUGINS": "off"}, PluginActivation()),
    ],
)
def test_variables_are_parsed(environ: dict[str, str], expected: PluginActivation) -> None:
    assert PluginActivation.from_environment(environ) == expected


def test_a_variable_that_is_no_boolean_is_an_error() -> None:
    with pytest.raises(UserError, match="INFER_STRICT_PLUGINS='maybe'"):
        PluginActivation.from_environment({"INFER_STRICT_PLUGINS": "maybe"})
