"""Plain commands work whatever plugins are installed, and whether torch is there or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin_site import PREAMBLE, Site, sampler

pytestmark = pytest.mark.timeout(60)

HALF = PREAMBLE + sampler("s1") + "@hookimpl\ndef infer_executors():\n    raise OSError('disk')\n"
HEAVY = ("torch", "numpy", "transformers")

# Runs the command line as `infer` does, then says what it has imported.
PROBE = f"""
import sys
from infer.cli.main import main
try:
    code = main()
except SystemExit as end:
    code = end.code
print("\\nheavy:", *(name for name in {HEAVY} if name in sys.modules))
raise SystemExit(code)
"""

PLAIN = [
    ("--help",),
    ("--version",),
    ("plugins",),
    ("plugins", "--json"),
    ("plugins", "show", "builtin"),
    ("plugins", "--help"),
    ("serve", "--help"),
    ("tune", "--help"),
]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def infer(
    site: Site, *arguments: str, probe: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``infer`` with the site's plugins installed."""
    start = ["-c", PROBE] if probe else ["-m", "infer"]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site.folder), **variables},
    )


def break_torch(site: Site) -> None:
    site.write("torch.py", "raise ImportError('libtorch_cpu.so: cannot open shared object file')")


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_a_plain_command_imports_nothing_heavy_beside_a_broken_plugin(
    site: Site, arguments: tuple[str, ...]
) -> None:
    """PLG-01"""
    site.install("broken", "import no_such_module")
    done = infer(site, *arguments, probe=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["heavy:"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [*PLAIN, ("env",), ("env", "--json")], ids=" ".join)
def test_a_plain_command_works_where_torch_can_not_be_imported(
    site: Site, arguments: tuple[str, ...]
) -> None:
    break_torch(site)
    done = infer(site, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert arguments[0] != "env" or "cannot open shared object file" in done.stdout


def test_a_broken_plugin_is_one_warning_and_the_healthy_one_is_active(site: Site) -> None:
    """PLG-01"""
    site.install("broken", "import no_such_module", version="0.3")
    site.install("healthy", PREAMBLE + sampler("calm"))
    done = infer(site, "plugins", "--json")
    states = {plugin["name"]: plugin["state"] for plugin in json.loads(done.stdout)["plugins"]}
    assert (states["broken"], states["healthy"]) == ("failed", "active")
    (line,) = done.stderr.splitlines()
    for part in ("'broken'", "infer-broken 0.3", "No module named 'no_such_module'"):
        assert part in line


def test_strictness_makes_it_a_failure(site: Site) -> None:
    """PLG-01"""
    site.install("broken", "import no_such_module")
    assert infer(site, "plugins", INFER_STRICT_PLUGINS="0").returncode == 0
    done = infer(site, "plugins", INFER_STRICT_PLUGINS="1")
    assert done.returncode == 2
    assert done.stderr.startswith("infer: error: plugin 'broken' (infer-broken 1.0)")


def test_a_name_that_is_taken_is_a_warning_with_both_owners(site: Site) -> None:
    """PLG-05"""
    site.install("mine", PREAMBLE + sampler("torch"))
    done = infer(site, "plugins", "show", "torch")
    assert done.returncode == 0
    assert "builtin:torch" in done.stdout
    assert "mine:torch" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "builtin and mine" in line


def test_a_plugin_that_fails_half_way_provides_nothing(site: Site) -> None:
    """PLG-07"""
    site.install("half", HALF)
    done = infer(site, "plugins", "show", "s1")
    assert done.returncode == 2
    assert "no plugin or provider is named 's1'" in done.stderr
    assert "failed: OSError: disk" in infer(site, "plugins", "show", "half").stdout


def test_a_declaration_that_imports_torch_is_reported_by_name(site: Site) -> None:
    site.write("torch.py", "")
    site.install("heavy", "import torch\n" + PREAMBLE)
    done = infer(site, "plugins")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.endswith("plugin 'heavy' (infer-heavy 1.0) imports torch in its declaration module")


def test_a_plugin_that_ends_the_process_does_not(site: Site) -> None:
    site.install("rude", "import sys\nsys.exit(3)\n")
    done = infer(site, "plugins")
    assert done.returncode == 0
    assert "SystemExit: 3" in done.stdout
