"""safetensors checkpoints: the index alone decides, and what is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from infer.modeling.providers.safetensors_format import SafetensorsFormat
from infer_plugin_api.errors import ModelError

INDEX = "model.safetensors.index.json"


def opened(folder: Path) -> Any:
    return SafetensorsFormat().open(folder, {})


def contents(folder: Path) -> dict[str, torch.Tensor]:
    reader = opened(folder)
    return {name: reader.read(name) for name in reader.tensors()}


def random_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"layer.{i}.weight": torch.randn(4, 3, generator=generator) for i in range(6)}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Two shards with an index."""
    tensors = random_tensors()
    names = sorted(tensors)
    shards = {"model-1-of-2.safetensors": names[:3], "model-2-of-2.safetensors": names[3:]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, tmp_path / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def test_a_single_file_is_read_under_any_name(tmp_path: Path) -> None:
    save_file(random_tensors(), tmp_path / "weights.safetensors")
    assert equal(contents(tmp_path), random_tensors())


def test_shards_are_read_as_the_index_says(sharded: Path) -> None:
    assert equal(contents(sharded), random_tensors())


def zeros(names: list[str]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(4, 3) for name in names}


def add_other_names(folder: Path) -> None:
    save_file(zeros(["tok_embeddings.weight"]), folder / "consolidated.safetensors")


def add_all_names(folder: Path) -> None:
    save_file(zeros(list(random_tensors())), folder / "model.safetensors")


def add_to_a_shard(folder: Path) -> None:
    path = folder / "model-2-of-2.safetensors"
    save_file(load_file(path) | zeros(["layer.0.weight"]), path)


@pytest.mark.parametrize("disturb", [add_other_names, add_all_names, add_to_a_shard])
def test_files_and_tensors_beside_the_index_change_nothing(
    sharded: Path, disturb: Callable[[Path], None]
) -> None:
    """LOAD-03"""
    disturb(sharded)
    assert equal(contents(sharded), random_tensors())


def test_sizes_are_known_before_anything_is_read(tmp_path: Path) -> None:
    tensors = {
        "a": torch.zeros(3, 5, dtype=torch.bfloat16),
        "b": torch.zeros(7, dtype=torch.float32),
        "c": torch.zeros(2, 2, 2, dtype=torch.int8),
        "d": torch.zeros((), dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    infos = opened(tmp_path).tensors()
    assert {name: (info.shape, info.nbytes) for name, info in infos.items()} == {
        name: (tuple(tensor.shape), tensor.nbytes) for name, tensor in tensors.items()
    }


def test_a_tensor_that_is_read_is_a_view_of_the_file(tmp_path: Path) -> None:
    """Memory-mapped: reading half a gigabyte costs nothing until it is used."""
    save_file({"big": torch.zeros(1 << 20)}, tmp_path / "model.safetensors")
    reader = opened(tmp_path)
    big = reader.read("big")
    reader.close()
    path = str(tmp_path / "model.safetensors")
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("the system does not list mapped files")
    ranges = [line.split()[0].split("-") for line in maps.read_text().splitlines() if path in line]
    address = big.data_ptr()
    assert any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


def test_a_tensor_that_is_not_there_is_a_key_error(sharded: Path) -> None:
    with pytest.raises(KeyError, match=r"layer\.9\.weight"):
        opened(sharded).read("layer.9.weight")


def write_index(folder: Path, content: Any) -> None:
    (folder / INDEX).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is no index of shards"),
        ({}, "is no index of shards"),
        ({"weight_map": ["a"]}, "is no index of shards"),
        ({"weight_map": {"a": 3}}, "is no index of shards"),
        ({"weight_map": {"a": "model-9.safetensors"}}, r"names model-9\.safetensors, which is not"),
        ({"weight_map": {"a": "../x.safetensors"}}, r"names x\.safetensors, which is not"),
        ({"weight_map": {"a": "model-1-of-2.safetensors"}}, "holds a; it does not"),
    ],
)
def test_an_index_that_is_wrong_says_how(sharded: Path, content: Any, fault: str) -> None:
    (sharded.parent / "x.safetensors").write_bytes(b"")
    write_index(sharded, content)
    with pytest.raises(ModelError, match=fault) as caught:
        opened(sharded)
    assert "\n" not in str(caught.value)


def test_shards_without_an_index_are_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(ModelError, match=r"has 2 \.safetensors files but no model\.safetensors\."):
        opened(sharded)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no \.safetensors file"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 99]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors is no readable safetensors file"):
        opened(tmp_path)


def test_a_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(random_tensors(), path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelError, match=r"model\.safetensors is no readable safetensors file"):
        opened(tmp_path)
