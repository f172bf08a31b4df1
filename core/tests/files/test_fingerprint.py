"""Fingerprints: the same for the same files, another one for any change, and cheap."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infer.modeling.fingerprint import fingerprint
from infer_plugin_api.errors import ModelError


def flip(path: Path, place: int) -> None:
    """Change one byte and nothing else that a listing shows."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], None]] = {
    "config": lambda folder: flip(folder / "config.json", 20),
    "tokenizer": lambda folder: flip(folder / "tokenizer.json", -20),
    "head of the weights": lambda folder: flip(folder / "model.safetensors", 60),
    "time of the weights": lambda folder: os.utime(folder / "model.safetensors", ns=(1, 1)),
    "size of the weights": lambda folder: os.truncate(folder / "model.safetensors", 5000),
    "name of the weights": lambda folder: shutil.move(
        folder / "model.safetensors", folder / "other.safetensors"
    ),
    "another file": lambda folder: (folder / "adapter.json").write_text("{}"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_files_changes_it(model: Path, change: str) -> None:
    before = fingerprint(model)
    assert fingerprint(model) == before
    CHANGES[change](model)
    assert fingerprint(model) != before


def test_a_copy_that_keeps_the_times_has_the_same_one(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == fingerprint(model)


def test_files_that_are_no_part_of_a_model_do_not_count(model: Path) -> None:
    before = fingerprint(model)
    (model / "README.md").write_text("hello")
    (model / "logs").mkdir()
    (model / "download.lock").symlink_to("nowhere")
    assert fingerprint(model) == before


def test_it_takes_less_than_50_milliseconds(model: Path, smollm2_path: Path) -> None:
    def seconds(path: Path) -> float:
        started = time.perf_counter()
        fingerprint(path)
        return time.perf_counter() - started

    with (model / "model.safetensors").open("ab") as file:
        file.truncate(4 << 30)
    (model / "big.json").write_bytes(b"1" * (8 << 20))
    for path in (model, smollm2_path):
        assert min(seconds(path) for _ in range(5)) < 0.05


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.gguf can't be read: No such file"):
        fingerprint(tmp_path / "gone.gguf")
