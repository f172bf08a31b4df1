"""Packages, tox and CI agree with each other and with the rules of the house."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.devenv import entry_points
from tools.readme import setup_command
from tools.workspace import ROOT, Package, packages

PACKAGES = packages()
MAX_LINES = 600


def names(package: Package) -> str:
    return package.name


def sources(*suffixes: str) -> Iterator[Path]:
    """Yield the files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


@pytest.mark.parametrize("package", PACKAGES, ids=names)
def test_the_installed_entry_points_are_those_of_the_pyproject(package: Package) -> None:
    try:
        distribution = importlib.metadata.distribution(package.name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package.name} is not part of this environment")
    assert entry_points(distribution) == package.entry_points


@pytest.mark.parametrize("package", PACKAGES, ids=names)
def test_a_package_is_complete(package: Package) -> None:
    for file in ("README.md", "tests", f"src/{package.import_name}/py.typed"):
        assert (package.folder / file).exists(), f"{package.name} lacks {file}"
    assert (package.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert package.project["license"] == "Apache-2.0"
    assert package.project["requires-python"] == ">=3.11"
    assert package.import_name == package.name.replace("-core", "").replace("-", "_")


def test_import_names_are_distinct() -> None:
    imported = [package.import_name for package in PACKAGES]
    assert sorted(set(imported)) == sorted(imported)


def test_tox_and_the_floors_know_every_plugin() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    plugins = {p.folder.name for p in PACKAGES if p.folder.parent == ROOT / "plugins"}
    (section,) = (name for name in tox.sections() if name.startswith("testenv:plugin-"))
    assert set(re.findall(r"[\w-]+", section.partition("{")[2])) == plugins
    floors = configparser.ConfigParser(interpolation=None)
    floors.read(ROOT / ".importlinter")
    roots = set(floors["importlinter"]["root_packages"].split())
    assert roots == {"infer", "infer_plugin_api", *(f"infer_{name}" for name in plugins)}


def test_every_constraint_is_exact_and_names_no_index() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!]+", pin) for pin in pins)
    assert "torch==2.13.0" in pins


def test_the_readme_ci_and_tox_run_the_same_commands() -> None:
    start = "python3 -m venv .venv && .venv/bin/pip install tox && .venv/bin/tox"
    assert setup_command("test") == start
    assert setup_command("serve") == f"{start} -e serve"
    script = (ROOT / ".ci" / "run").read_text()
    assert "python3 -m tools.readme test" in script
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert tox["tox"]["env_list"] == "tests"
    for name in re.findall(r"tox -e ([\w-]+)", script):
        assert f"testenv:{name}" in tox
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR


def test_the_floors_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    if not lint_imports.exists():
        pytest.skip("import-linter is not part of this environment")
    done = subprocess.run(
        [lint_imports, "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_names_a_machine_an_index_or_unfinished_work() -> None:
    words = ["/" + "work/", "/" + "root/", "/" + "tmp/scratch", "/" + "opt/pypi"]
    words += ["files." + "pythonhosted", "pypi.org/" + "simple", "TO" + "DO", "FIX" + "ME"]
    words += ["XX" + "X", "HA" + "CK"]
    found = []
    for path in sources(".py", ".md", ".toml", ".ini", ".txt", ".json", ".yml", "", ".jinja"):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word in text]
    assert not found


def test_no_module_is_too_long() -> None:
    lengths = {path: path.read_text().count("\n") for path in sources(".py")}
    assert not {path: length for path, length in lengths.items() if length > MAX_LINES}


def test_only_specifications_raise_not_implemented() -> None:
    for path in sources(".py"):
        if path.name not in {"hookspecs.py", Path(__file__).name}:
            assert "raise NotImplementedError" not in path.read_text(), path


@pytest.mark.parametrize(
    "package", [p for p in PACKAGES if p.folder.parent.name == "plugins"], ids=names
)
def test_a_plugin_imports_only_the_plugin_api_and_what_it_declares(package: Package) -> None:
    declared = {re.split(r"[\s<>=!~\[;]", line)[0] for line in package.project["dependencies"]}
    extras = package.project.get("optional-dependencies", {})
    declared |= {re.split(r"[\s<>=!~\[;]", line)[0] for group in extras.values() for line in group}
    own = {package.import_name, "infer_plugin_api"}
    allowed = own | {name.replace("-", "_").lower() for name in declared} | {"torch"}
    found = imported_by((package.folder / "src").rglob("*.py")) - sys.stdlib_module_names
    assert found <= allowed | OPTIONAL, f"{package.name} imports {sorted(found - allowed)}"
    beside = {path.stem for path in (package.folder / "tests").rglob("*.py")}
    tests = imported_by((package.folder / "tests").rglob("*.py")) - sys.stdlib_module_names
    assert tests - beside <= allowed | OPTIONAL | {"pytest", "hypothesis", "numpy"}


OPTIONAL = {"huggingface_hub"}
"""What a plugin uses where it is installed and does without where not."""


def imported_by(files: Iterator[Path]) -> set[str]:
    """Return the top-level names that *files* import anywhere."""
    found = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(), path)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found
