"""Which plugins are found, whatever else is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infer.plugins.registry import PluginRecord, Registry
from tests.plugin_site import PREAMBLE, Site, sampler

Load = Callable[..., Registry]
Warnings = Callable[[], list[str]]


def named(registry: Registry, name: str) -> list[PluginRecord]:
    return [record for record in registry.records if record.name == name]


def test_an_installed_plugin_is_active_with_what_it_declares(site: Site, load: Load) -> None:
    site.install("mine", PREAMBLE + sampler("calm"), version="2.5")
    record = load().record("mine")
    assert (record.distribution, record.version, record.state) == ("infer-mine", "2.5", "active")
    assert (record.api_version, record.reference, record.reason) == ("1.0", "mine_module", "")
    assert [provider.name for provider in record.providers] == ["calm"]
    assert load().find("sampler", "calm").qualified == "mine:calm"


def test_core_comes_first_and_the_others_follow_by_name(site: Site, load: Load) -> None:
    for name in ("zz", "aa"):
        site.install(name)
    names = [record.name for record in load().records]
    assert names[0] == "builtin"
    assert names[1:] == sorted(names[1:])
    assert {"aa", "zz"} < set(names)


def test_an_entry_point_may_name_an_attribute_and_extras(site: Site, load: Load) -> None:
    site.install(
        "inner",
        "class Holder:\n    class plugin:\n"
        "        from infer_plugin_api import PluginInfo\n"
        "        infer_plugin = PluginInfo(api_version='1.0')\n",
        entry_point="inner_module : Holder.plugin [extra]",
    )
    record = load().record("inner")
    assert record.state == "active"
    assert record.reference == "inner_module:Holder.plugin"


def test_a_distribution_that_is_on_the_path_twice_counts_once(
    site: Site, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: Warnings
) -> None:
    site.install("twice", PREAMBLE + sampler("old"), distribution="Infer.Twice", version="1.0")
    second = Site(tmp_path / "second")
    second.install("twice", PREAMBLE + sampler("new"), distribution="infer-twice", version="2.0")
    monkeypatch.syspath_prepend(second.folder)
    (record,) = named(load(), "twice")
    assert (record.version, record.state) == ("2.0", "active")
    assert [provider.name for provider in record.providers] == ["new"]
    assert not warnings()
    second.forget()


def test_a_stale_copy_without_entry_points_hides_nothing(site: Site, load: Load) -> None:
    site.install("stale", PREAMBLE + sampler("fresh"))
    site.write("infer_stale.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: infer-stale\n")
    assert load().record("stale").state == "active"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("torn-1.0.dist-info/RECORD", b""),
        ("torn-1.0.dist-info/METADATA", b"\xff\xfe\x00"),
        ("torn-1.0.dist-info/entry_points.txt", b"\xff\xfe[infer.plugins]"),
        ("torn-1.0.dist-info/entry_points.txt", b"[console_scripts]\nno equals sign\n"),
    ],
)
def test_torn_metadata_of_another_distribution_changes_nothing(
    site: Site, load: Load, warnings: Warnings, file: str, content: bytes
) -> None:
    site.install("healthy")
    site.write(file, content)
    assert load().record("healthy").state == "active"
    assert not warnings()


def test_a_plugins_own_torn_entry_points_are_reported(
    site: Site, load: Load, warnings: Warnings
) -> None:
    site.install("healthy")
    site.install("torn")
    site.write("infer_torn-1.0.dist-info/entry_points.txt", "[infer.plugins]\nno equals sign\n")
    assert load().record("healthy").state == "active"
    (line,) = warnings()
    assert "infer-torn" in line
    assert "entry_points.txt" in line


def test_plugins_whose_metadata_are_gone_are_named_by_their_place(site: Site, load: Load) -> None:
    for name in ("bare", "naked"):
        site.install(name)
        (site.folder / f"infer_{name}-1.0.dist-info" / "METADATA").unlink()
    for name in ("bare", "naked"):
        record = load().record(name)
        assert record.state == "active"
        assert str(site.folder) in record.distribution


def test_a_name_that_two_distributions_use_is_neithers(
    site: Site, load: Load, warnings: Warnings
) -> None:
    site.install("same", PREAMBLE + sampler("first"), distribution="first-dist")
    site.install("same", PREAMBLE + sampler("second"), distribution="second-dist", version="3.0")
    registry = load()
    records = named(registry, "same")
    assert [record.state for record in records] == ["conflict", "conflict"]
    assert all("first-dist 1.0 and second-dist 3.0" in record.reason for record in records)
    assert not any(record.providers for record in records)
    assert len(warnings()) == 2


def test_the_name_of_cores_own_plugin_can_not_be_taken(
    site: Site, load: Load, warnings: Warnings
) -> None:
    site.install("builtin", PREAMBLE + sampler("mine"), distribution="impostor")
    core, impostor = named(load(), "builtin")
    assert (core.distribution, core.state) == ("infer-core", "active")
    assert (impostor.distribution, impostor.state) == ("impostor", "conflict")
    assert "belongs to infer-core" in impostor.reason
    assert len(warnings()) == 1
