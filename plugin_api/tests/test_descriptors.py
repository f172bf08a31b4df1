"""Descriptors say what is wrong with them, and can cross processes."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

import infer_plugin_api
from infer_plugin_api import (
    DESCRIPTORS,
    ArchitectureDescriptor,
    AttentionDescriptor,
    LogitsProcessorDescriptor,
    OpDescriptor,
    Provider,
)

IMPLEMENTATION = "package.module:Class"


def sound(kind: type[Provider], **fields: Any) -> Provider:
    """Return a descriptor of *kind* with the least that it needs, and *fields*."""
    least: dict[str, Any] = {"name": "mine", "implementation": IMPLEMENTATION}
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.name not in least:
            least[field.name] = ("X",) if str(field.type).startswith("tuple") else "x"
    return kind(**(least | fields))


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_a_sound_descriptor_has_no_problems(kind: type[Provider]) -> None:
    assert sound(kind).problems() == []


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_a_descriptor_is_frozen_and_survives_pickling(kind: type[Provider]) -> None:
    descriptor = sound(kind)
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    with pytest.raises(dataclasses.FrozenInstanceError):
        descriptor.name = "other"  # type: ignore[misc]


def test_every_descriptor_is_listed_once_with_a_slot_of_its_own() -> None:
    defined = {
        value
        for value in vars(infer_plugin_api.descriptors).values()
        if inspect.isclass(value) and issubclass(value, Provider) and value is not Provider
    }
    assert set(DESCRIPTORS) == defined
    assert len({kind.slot for kind in DESCRIPTORS}) == len(DESCRIPTORS)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "name '' must be a non-empty string without ':'"),
        ({"name": "a:b"}, "name 'a:b' must be a non-empty string without ':'"),
        ({"name": 3}, "name 3 must be a non-empty string without ':'"),
        ({"implementation": "module"}, "'module' must be 'package.module:Class'"),
        ({"implementation": ":Class"}, "':Class' must be 'package.module:Class'"),
        ({"implementation": "module:"}, "'module:' must be 'package.module:Class'"),
        ({"priority": "high"}, "priority 'high' must be an integer"),
        ({"requires_modules": "numba"}, "requires_modules must be a tuple, not str"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], problem: str) -> None:
    (found,) = sound(LogitsProcessorDescriptor, **fields).problems()
    assert problem in found


def test_all_problems_are_told_at_once() -> None:
    wrong = sound(AttentionDescriptor, name="", implementation="", platforms=["cpu"])
    assert len(wrong.problems()) == 3


def test_an_op_names_what_it_computes() -> None:
    assert sound(OpDescriptor, op="").problems() == ["op must name a fused op"]


def test_an_architecture_provider_names_architectures() -> None:
    found = sound(ArchitectureDescriptor, architectures=()).problems()
    assert found == ["architectures must name at least one architecture"]


def test_a_provider_without_a_slot_is_not_sound() -> None:
    assert Provider(name="mine", implementation=IMPLEMENTATION).problems() == [
        "Provider names no slot"
    ]


def test_the_whole_api_can_be_imported_without_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, infer_plugin_api as api\n"
        "for module in pkgutil.iter_modules(api.__path__):\n"
        "    importlib.import_module(f'infer_plugin_api.{module.name}')\n"
        "assert not {'torch', 'numpy', 'infer'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
