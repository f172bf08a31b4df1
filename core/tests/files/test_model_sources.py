"""Where models come from: paths of this machine and the Hugging Face hub's cache."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest

from infer.modeling.providers.hub_source import HubSource
from infer.modeling.providers.local_source import LocalSource
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import SourceContext

from .gguf_files import GGUFWriter, weights

Context = Callable[..., SourceContext]


def test_a_folder_is_found_by_any_way_of_writing_its_path(
    model: Path, source_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("HOME", str(model.parent))
    source = LocalSource()
    ways = [str(model), model.name, f"./{model.name}", f"{model.name}/", f"~/{model.name}"]
    found = [source.resolve(way, source_context()) for way in ways]
    assert {item.path for item in found if item} == {model.resolve()}
    assert [item.name for item in found if item] == [model.name] * len(ways)
    assert len({item.fingerprint for item in found if item}) == 1


def test_a_gguf_file_is_a_model_by_itself(gguf_file: GGUFWriter, source_context: Context) -> None:
    path = gguf_file(weights(), name="tiny.Q4.gguf")
    found = LocalSource().resolve(str(path), source_context())
    assert found is not None
    assert (found.path, found.name) == (path.resolve(), "tiny.Q4")


def test_a_folder_around_one_gguf_file_means_that_file(
    gguf_file: GGUFWriter, source_context: Context
) -> None:
    path = gguf_file(weights())
    found = LocalSource().resolve(str(path.parent), source_context())
    assert found is not None
    assert found.path == path.resolve()
    gguf_file(weights(), name="other.gguf")
    with pytest.raises(ModelError, match=r"holds 2 GGUF files \(model\.gguf, other\.gguf\)"):
        LocalSource().resolve(str(path.parent), source_context())


@pytest.fixture
def empty_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names must not meet what lies around the clone of whoever runs the tests."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(inside))


@pytest.mark.usefixtures("empty_surroundings")
@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "../x", "~/nowhere", "a.gguf"])
def test_a_name_that_can_only_be_a_path_must_exist(name: str, source_context: Context) -> None:
    with pytest.raises(ModelError, match=f"no model at {name}: there is no such folder or file"):
        LocalSource().resolve(name, source_context())


@pytest.mark.usefixtures("empty_surroundings")
@pytest.mark.parametrize("name", ["smollm2", "owner/model", "x" * 5000, "nul\0", "~nobody9/x"[1:]])
def test_other_names_are_left_to_other_sources(name: str, source_context: Context) -> None:
    assert LocalSource().resolve(name, source_context()) is None


def test_a_file_of_another_kind_is_refused(model: Path, source_context: Context) -> None:
    with pytest.raises(ModelError, match=r"config\.json is a file, but only \.gguf files"):
        LocalSource().resolve(str(model / "config.json"), source_context())


REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def snapshot(hub_cache: Path, model: Path) -> Path:
    """The model as `owner/model` in the hub's cache."""
    repository = hub_cache / "models--owner--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    folder = repository / "snapshots" / REVISION
    shutil.copytree(model, folder)
    return folder


@pytest.mark.parametrize("offline", [True, False])
def test_a_complete_copy_in_the_hubs_cache_is_used_without_asking(
    snapshot: Path, source_context: Context, offline: bool
) -> None:
    found = HubSource().resolve("owner/model", source_context(offline=offline))
    assert found is not None
    assert (found.name, found.path) == ("owner/model", snapshot)


def test_a_revision_is_looked_up_in_the_cache(snapshot: Path, source_context: Context) -> None:
    found = HubSource().resolve("owner/model", source_context(revision=REVISION))
    assert found is not None
    assert found.path == snapshot
    with pytest.raises(ModelError, match="not complete in the Hugging Face cache"):
        HubSource().resolve("owner/model", source_context(revision="f" * 40))


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_a_shard(folder: Path) -> None:
    weight_map = {"a": "model.safetensors", "b": "model-2.safetensors"}
    index = {"weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def with_a_broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")


@pytest.mark.parametrize(
    "spoil", [without_config, without_weights, without_a_shard, with_a_broken_index]
)
def test_a_download_that_was_interrupted_is_not_taken_for_the_model(
    snapshot: Path, source_context: Context, spoil: Callable[[Path], None]
) -> None:
    spoil(snapshot)
    with pytest.raises(ModelError, match="not complete in the Hugging Face cache") as caught:
        HubSource().resolve("owner/model", source_context())
    assert "INFER_OFFLINE or HF_HUB_OFFLINE forbids fetching it" in str(caught.value)


@pytest.mark.parametrize("name", ["model", "a/b/c", "a b/c", "/a/b", "./a", "../a", "a/", "-a/-b/"])
def test_names_that_are_none_of_the_hub_are_left_alone(
    hub_cache: Path, source_context: Context, name: str
) -> None:
    assert HubSource().resolve(name, source_context(offline=False)) is None


FETCH = """
import sys
from pathlib import Path
from infer.modeling.providers import hub_source
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import SourceContext

hub_source._TIMEOUT_SECONDS = 1.0
context = SourceContext(cache_dir=Path(), offline=False, revision=None, announce=print)
try:
    hub_source.HubSource().resolve("owner/model", context)
except ModelError as error:
    print("error:", error)
"""


@pytest.mark.timeout(90)
def test_a_hub_that_can_not_be_reached_is_one_line_within_seconds(
    tmp_path: Path, free_port: int
) -> None:
    """Nobody listens at the address; in a process of its own, as the library reads it once."""
    told = fetched_from(f"http://127.0.0.1:{free_port}", tmp_path)
    assert told.count("\n") == 1
    assert "owner/model is no local folder and can't be fetched from the Hugging Face hub" in told


@pytest.mark.timeout(90)
def test_a_hub_that_does_not_answer_is_given_up_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        told = fetched_from(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    assert "can't be fetched from the Hugging Face hub" in told
    assert time.monotonic() - started < 30


def fetched_from(endpoint: str, home: Path) -> str:
    variables = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", FETCH],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
