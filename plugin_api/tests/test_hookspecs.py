"""Every hook says in one fixed form what an author must know."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pluggy
import pytest

from infer_plugin_api import hookimpl, hookspecs
from infer_plugin_api.markers import PROJECT

HOOKS = [
    hook
    for name, hook in vars(hookspecs).items()
    if inspect.isfunction(hook) and name.startswith("infer_")
]
DECLARATIONS = [hook for hook in HOOKS if not inspect.signature(hook).parameters]
EVENTS = [hook for hook in HOOKS if hook not in DECLARATIONS]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_tells_when_it_is_called_how_results_combine_and_its_version(
    hook: Callable[..., object],
) -> None:
    lines = (inspect.getdoc(hook) or "").splitlines()
    text = " ".join(" ".join(lines).split())
    assert re.fullmatch(r"(Declare|Learn) .+\.", lines[0])
    assert lines[1] == ""
    assert re.search(r"Called: (at start-up|once).*\. Hot path: no", text)
    assert re.search(r"Results: (joined|ignored)\. Since API \d+\.\d+\.$", text)


@pytest.mark.parametrize("hook", DECLARATIONS)
def test_a_declaration_hook_joins_the_descriptors_of_all_plugins(
    hook: Callable[..., object],
) -> None:
    assert "Results: joined" in str(hook.__doc__)
    assert re.fullmatch(r"Sequence\[\w+Descriptor\]", hook.__annotations__["return"])


@pytest.mark.parametrize("hook", EVENTS)
def test_an_event_hook_returns_nothing(hook: Callable[..., object]) -> None:
    assert "Results: ignored" in " ".join(str(hook.__doc__).split())
    assert hook.__annotations__["return"] == "None"


def test_pluggy_accepts_the_specifications_and_an_implementation() -> None:
    class Plugin:
        @hookimpl
        def infer_samplers(self) -> list[object]:
            return []

        @hookimpl
        def infer_request_finished(self, event: object) -> None:
            raise AssertionError(event)

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(Plugin())
    manager.check_pending()
    assert manager.hook.infer_samplers() == [[]]


def test_a_wrong_hook_name_is_found() -> None:
    class Plugin:
        @hookimpl
        def infer_sampler(self) -> list[object]:
            return []

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(Plugin())
    with pytest.raises(pluggy.PluginValidationError, match="infer_sampler"):
        manager.check_pending()
