"""A plugin that declares nonsense contributes nothing, says why in one line, and stops nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infer.config.errors import UserError
from infer.plugins.declarations import HOOKS
from infer.plugins.registry import Registry
from infer_plugin_api import DESCRIPTORS, hookspecs
from tests.plugin_site import PREAMBLE, Site, sampler

Load = Callable[..., Registry]
Warnings = Callable[[], list[str]]


def hook(returned: str, name: str = "infer_samplers") -> str:
    return PREAMBLE + f"\n@hookimpl\ndef {name}():\n    return {returned}\n"


def descriptor(**changed: str) -> str:
    fields = {"name": "'x'", "implementation": "'a:B'", **changed}
    return f"SamplerDescriptor({', '.join(f'{name}={text}' for name, text in fields.items())})"


BROKEN = {
    "import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "syntax": ("def", "SyntaxError: "),
    "exit": ("raise SystemExit('bye')", "SystemExit: bye"),
    "long text": ("raise ValueError('x\\n' * 5000)", "ValueError: x x x"),
    "no info": ("", "has no attribute infer_plugin = PluginInfo(api_version=...)"),
    "other info": ("infer_plugin = '1.0'", "found str"),
    "no version": (PREAMBLE.replace('"1.0"', '"one"'), "'one'"),
    "misspelt hook": (
        PREAMBLE + sampler("x", hook="infer_sampler"),
        "implements infer_sampler, which is no hook of infer; did you mean infer_samplers?",
    ),
    "unmarked hook": (
        PREAMBLE + "def infer_samplers():\n    return []\n",
        "defines infer_samplers without @hookimpl",
    ),
    "unknown argument": (
        PREAMBLE + "@hookimpl\ndef infer_samplers(torch_version):\n    return []\n",
        "torch_version",
    ),
    "unknown event argument": (
        PREAMBLE + "@hookimpl\ndef infer_request_finished(request):\n    pass\n",
        "request",
    ),
    "forgotten return": (
        hook("None"),
        "infer_samplers returned NoneType, expected a list of SamplerDescriptor",
    ),
    "no list": (hook(descriptor()), "infer_samplers returned SamplerDescriptor, expected a list"),
    "generator": (hook("(x for x in [])"), "infer_samplers returned generator"),
    "no descriptor": (hook("['x']"), "infer_samplers returned a 'x', expected SamplerDescriptor"),
    "class": (hook("[SamplerDescriptor]"), "expected SamplerDescriptor"),
    "other slot": (
        hook("[LogitsProcessorDescriptor(name='x', implementation='a:B')]"),
        "infer_samplers returned a LogitsProcessorDescriptor, expected SamplerDescriptor",
    ),
    "nameless": (hook(f"[{descriptor(name=repr(''))}]"), "must be a non-empty string"),
    "colon in name": (hook(f"[{descriptor(name=repr('a:b'))}]"), "without ':'"),
    "no class": (hook(f"[{descriptor(implementation=repr('a'))}]"), "'package.module:Class'"),
    "list for tuple": (
        hook(f"[{descriptor(requires_modules=['numpy'])}]"),
        "requires_modules must be a tuple, not list",
    ),
    "twice": (
        hook(f"[{descriptor()}, {descriptor()}]"),
        "declares the same provider twice: sampler x",
    ),
    "missing field": (hook("[SamplerDescriptor(name='x')]"), "TypeError: "),
    "raising hook": (hook("1 / 0"), "ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize(("source", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_is_reported_in_one_line_and_left_out(
    site: Site, load: Load, warnings: Warnings, source: str, reason: str
) -> None:
    site.install("healthy", PREAMBLE + sampler("calm"))
    site.install("broken", source, version="0.3")
    registry = load()
    record = registry.record("broken")
    assert record.providers == ()
    assert reason in record.reason
    (line,) = warnings()
    assert line.startswith("plugin 'broken' (infer-broken 0.3) is left out: ")
    assert reason in line
    assert "\n" not in line
    assert len(line) < 500
    assert registry.find("sampler", "calm").plugin == "healthy"


@pytest.mark.parametrize(
    ("version", "side"),
    [("2.0", "upgrade infer-plugin-api"), ("0.9", "upgrade the plugin"), ("1.99", "upgrade")],
)
def test_a_plugin_for_another_api_is_refused_with_the_side_to_upgrade(
    site: Site, load: Load, warnings: Warnings, version: str, side: str
) -> None:
    site.install("alien", PREAMBLE.replace("1.0", version) + "1 / 1\n" + sampler("x"))
    record = load().record("alien")
    assert (record.state, record.api_version) == ("incompatible", version)
    assert f"built for plugin API {version}" in record.reason
    assert side in record.reason
    assert len(warnings()) == 1


@pytest.mark.parametrize("entry_point", ["no_such_module", "broken_module:absent", "not a name!"])
def test_an_entry_point_that_leads_nowhere_is_reported(
    site: Site, load: Load, warnings: Warnings, entry_point: str
) -> None:
    site.install("broken", entry_point=entry_point)
    assert load().record("broken").state == "failed"
    assert len(warnings()) == 1


def test_a_plugin_that_fails_half_way_contributes_nothing(site: Site, load: Load) -> None:
    """PLG-07"""
    site.install(
        "half",
        PREAMBLE
        + sampler("s1")
        + "@hookimpl\ndef infer_request_finished(event):\n    pass\n"
        + "@hookimpl\ndef infer_scheduling_policies():\n    raise OSError('disk')\n",
    )
    registry = load()
    assert registry.record("half").state == "failed"
    assert registry.record("half").events == ()
    assert not registry.events.listens("infer_request_finished")
    with pytest.raises(UserError, match=r"unknown sampler 's1'; .*broken, .*: half"):
        registry.find("sampler", "s1")


def test_the_traceback_is_kept_for_who_asks(site: Site, load: Load) -> None:
    site.install("broken", hook("1 / 0"))
    assert "broken_module.py" in load().record("broken").traceback


@pytest.mark.parametrize("fields", [{"enable": ("broken",)}, {"strict": True}])
def test_a_failure_is_fatal_when_the_user_asked_for_the_plugin_or_for_strictness(
    site: Site, load: Load, fields: dict[str, object]
) -> None:
    """PLG-01"""
    site.install("broken", "import no_such_module")
    with pytest.raises(UserError, match=r"'broken' \(infer-broken 1.0\).*no_such_module"):
        load(**fields)


def test_a_hook_may_have_another_function_name_or_be_optional(site: Site, load: Load) -> None:
    site.install(
        "free",
        PREAMBLE
        + sampler("x")
        .replace("@hookimpl", "@hookimpl(specname='infer_samplers')")
        .replace("def infer_samplers", "def declare")
        + "@hookimpl(optionalhook=True)\ndef infer_of_tomorrow():\n    pass\n",
    )
    assert load().find("sampler", "x").plugin == "free"


def test_event_hooks_make_listeners(site: Site, load: Load) -> None:
    site.install("ear", PREAMBLE + "@hookimpl\ndef infer_engine_started():\n    pass\n")
    registry = load()
    assert registry.record("ear").events == ("infer_engine_started",)
    assert registry.events.listens("infer_engine_started")


def test_a_slow_declaration_is_reported_by_name(site: Site, load: Load, warnings: Warnings) -> None:
    site.install("slow", "import time\ntime.sleep(0.06)\n" + PREAMBLE)
    assert load().record("slow").state == "active"
    (line,) = warnings()
    assert line.startswith("plugin 'slow' (infer-slow 1.0) took ")


def test_the_declaration_hooks_are_those_of_the_specification() -> None:
    specified = {
        name: value.__annotations__["return"]
        for name, value in vars(hookspecs).items()
        if hasattr(value, "infer_spec")
    }
    declaring = {name: text for name, text in specified.items() if text != "None"}
    assert declaring == {name: f"Sequence[{kind.__name__}]" for name, kind in HOOKS.items()}
    assert set(HOOKS.values()) == set(DESCRIPTORS)
