"""Finding providers by name, and names that several plugins declare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infer.config.errors import UserError
from infer.plugins.registry import PluginRecord, Registry
from infer_plugin_api import (
    ArchitectureDescriptor,
    LogitsProcessorDescriptor,
    OpDescriptor,
    Provider,
    SamplerDescriptor,
)
from tests.plugin_site import PREAMBLE, Site, sampler

Load = Callable[..., Registry]
Warnings = Callable[[], list[str]]

LLAMA = """
@hookimpl
def infer_model_architectures():
    return [ArchitectureDescriptor(name="fast", implementation="a:B", priority=PRIORITY,
                                   architectures=("LlamaForCausalLM",))]
"""


def registry_of(**plugins: list[Provider]) -> Registry:
    return Registry(
        tuple(
            PluginRecord(
                name=name,
                distribution=f"infer-{name}",
                version="1.0",
                state="active",
                providers=tuple(providers),
            )
            for name, providers in plugins.items()
        )
    )


def a_sampler(name: str, **fields: object) -> SamplerDescriptor:
    return SamplerDescriptor(name=name, **{"implementation": "nowhere:Nothing", **fields})


def test_the_highest_priority_comes_first_then_who_was_found_first() -> None:
    registry = registry_of(
        a=[a_sampler("low", priority=-1), a_sampler("one")],
        b=[a_sampler("two"), a_sampler("high", priority=9)],
    )
    assert [item.name for item in registry.providers("sampler")] == ["high", "one", "two", "low"]


def test_an_unknown_name_is_an_error_with_all_names_and_the_nearest() -> None:
    registry = registry_of(a=[a_sampler("torch")], b=[a_sampler("calm")])
    with pytest.raises(
        UserError, match="unknown sampler 'torhc'; installed: calm, torch; did you mean 'torch'"
    ):
        registry.find("sampler", "torhc")


def test_an_unknown_name_in_an_empty_slot_says_so() -> None:
    with pytest.raises(UserError, match="unknown logits processor 'x'; installed: none"):
        registry_of().find("logits_processor", "x")


def test_a_name_of_two_plugins_is_neithers_and_both_can_be_written_in_full(
    site: Site, load: Load, warnings: Warnings
) -> None:
    """PLG-05"""
    site.install("mine", PREAMBLE + sampler("torch"))
    registry = load()
    with pytest.raises(
        UserError, match=r"declared by several plugins; write builtin:torch or mine:torch"
    ):
        registry.find("sampler", "torch")
    assert registry.find("sampler", "mine:torch").plugin == "mine"
    assert registry.find("sampler", "builtin:torch").plugin == "builtin"
    with pytest.raises(UserError, match="installed: builtin:torch, mine:torch"):
        registry.find("sampler", "other")
    (line,) = warnings()
    assert "sampler 'torch' is declared by the plugins builtin and mine" in line


def test_one_name_for_several_ops_is_no_collision_but_one_op_twice_is(
    site: Site, load: Load, warnings: Warnings
) -> None:
    declare = """
@hookimpl
def infer_ops():
    return [OpDescriptor(name=NAME, op=op, implementation="a:B") for op in ("rms_norm", "silu_mul")]
"""
    site.install("mine", PREAMBLE + declare.replace("NAME", "'fast'"))
    load()
    assert not warnings()
    site.install("yours", PREAMBLE + declare.replace("NAME", "'torch'"))
    load()
    assert sorted(warnings()) == [
        f"op 'torch' of op {op} is declared by the plugins builtin and yours; "
        "write plugin:name to choose one"
        for op in ("rms_norm", "silu_mul")
    ]


@pytest.mark.parametrize(("priority", "winner"), [("0", "builtin:llama"), ("5", "mine:fast")])
def test_two_families_for_one_architecture_are_reported_with_the_winner(
    site: Site, load: Load, warnings: Warnings, priority: str, winner: str
) -> None:
    site.install("mine", PREAMBLE + LLAMA.replace("PRIORITY", priority))
    chosen = load().architecture("LlamaForCausalLM")
    assert chosen is not None
    assert chosen.qualified == winner
    (line,) = warnings()
    assert "builtin:llama" in line
    assert "mine:fast" in line
    assert f"{winner} is used" in line


def test_an_architecture_that_nobody_serves_is_none() -> None:
    family = ArchitectureDescriptor(name="f", implementation="a:B", architectures=("F",))
    assert registry_of(a=[family]).architecture("G") is None


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.inner"])
def test_a_provider_whose_module_is_absent_says_what_to_install(module: str) -> None:
    registry = registry_of(
        a=[a_sampler("x", requires_modules=("json", module), install_hint="pip install it")]
    )
    reason = registry.missing(registry.find("sampler", "x"))
    assert reason == f"module {module!r} is not installed; pip install it"


def test_a_provider_that_lacks_nothing_is_not_missing() -> None:
    registry = registry_of(a=[a_sampler("x", requires_modules=("json",))])
    assert registry.missing(registry.find("sampler", "x")) is None


@pytest.mark.parametrize(
    ("implementation", "cause"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:Absent", "AttributeError: "),
    ],
)
def test_an_implementation_that_can_not_be_loaded_names_its_owner(
    implementation: str, cause: str
) -> None:
    registry = registry_of(
        mine=[LogitsProcessorDescriptor(name="x", implementation=implementation)]
    )
    with pytest.raises(UserError) as raised:
        registry.instance("logits_processor", "x")
    text = str(raised.value)
    assert "plugin 'mine' (infer-mine 1.0)" in text
    assert f"logits_processor 'x' can't be loaded from {implementation}: {cause}" in text


def test_an_implementation_is_loaded_and_made() -> None:
    registry = registry_of(
        a=[
            OpDescriptor(name="x", op="o", implementation="json:JSONDecoder"),
            a_sampler("x", implementation="collections:abc.Set.__class__"),
        ]
    )
    assert type(registry.instance("op", "x")).__name__ == "JSONDecoder"
    assert registry.load(registry.find("sampler", "x")).__name__ == "ABCMeta"


def test_an_unknown_plugin_is_an_error_with_all_names() -> None:
    with pytest.raises(UserError, match="no plugin named 'c' is installed; installed: a, b"):
        registry_of(a=[], b=[]).record("c")
