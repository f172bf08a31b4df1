"""What starts fast stays light: rooms that plan, serve and answer questions import no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = [
    "config",
    "telemetry",
    "text",
    "plugins",
    "scheduling",
    "kv_cache",
    "server",
    "cli",
]
HEAVY = ("torch", "transformers", "accelerate")

CODE = """
import importlib, pkgutil, sys
room = importlib.import_module("infer.{room}")
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
print(*(name for name in {heavy} if name in sys.modules))
"""


@pytest.mark.parametrize("room", LIGHT)
def test_importing_every_module_of_a_light_room_imports_nothing_heavy(room: str) -> None:
    code = CODE.format(room=room, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "module", ["infer", "infer.llm", "infer.engine.async_engine", "infer.engine.client"]
)
def test_importing_a_front_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["plugins"]])
def test_commands_that_compute_nothing_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom infer.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', *(name for name in {HEAVY} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1].strip() == "heavy:", done.stdout + done.stderr
