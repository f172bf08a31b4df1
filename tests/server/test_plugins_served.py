"""Serving beside broken, clashing and foreign plugins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.running import serve, served

BROKEN = "import no_such_module_anywhere\n"
CLASHING = """
from infer_plugin_api import PluginInfo, hookimpl
from infer_plugin_api.descriptors import SchedulingPolicyDescriptor
infer_plugin = PluginInfo(api_version="1.0")

@hookimpl
def infer_scheduling_policies():
    return [SchedulingPolicyDescriptor(name="fcfs", implementation="nowhere:Nothing")]
"""


def install(folder: Path, name: str, source: str) -> None:
    """Lay out what installing a distribution with one entry point would leave."""
    (folder / f"{name}_module.py").write_text(source)
    info = folder / f"infer_{name}-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: infer-{name}\nVersion: 0.0.1\n")
    (info / "entry_points.txt").write_text(f"[infer.plugins]\n{name} = {name}_module\n")


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    install(tmp_path, "broken", BROKEN)
    return {"PYTHONPATH": str(tmp_path)}


def test_a_broken_plugin_is_reported_and_the_server_starts(
    models: Callable[[str], Path], broken: dict[str, str]
) -> None:
    """PLG-01"""
    with served(models("alphabet"), env=broken) as server:
        assert server.text(max_tokens=20) == "ABCDEFGHIJKLMNOP"
    line = next(line for line in server.lines if "'broken'" in line)
    assert "infer-broken" in line
    assert "no_such_module_anywhere" in line
    assert "Traceback" not in server.output


@pytest.mark.parametrize("flags", [("--plugin", "broken"), ("--strict-plugins",)])
def test_a_broken_plugin_that_was_asked_for_is_fatal(
    models: Callable[[str], Path], broken: dict[str, str], flags: tuple[str, ...]
) -> None:
    """PLG-01"""
    process = serve(models("alphabet"), *flags, env=broken)
    try:
        assert process.exit_code(30) == 2, process.output
    finally:
        process.stop()
    assert "no_such_module_anywhere" in process.output


def test_a_name_that_two_plugins_declare_is_never_taken_silently(
    models: Callable[[str], Path], tmp_path: Path
) -> None:
    """PLG-05"""
    install(tmp_path, "clash", CLASHING)
    env = {"PYTHONPATH": str(tmp_path)}
    with served(models("alphabet"), "--scheduling-policy", "builtin:fcfs", env=env) as server:
        assert server.text(max_tokens=20) == "ABCDEFGHIJKLMNOP"
        assert any("builtin" in line and "clash" in line for line in server.lines)
