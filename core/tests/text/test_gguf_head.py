"""The head of GGUF files, as the gguf library writes them, and files that are broken."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from infer.text.gguf import read_head
from infer_plugin_api.errors import ModelError


def written(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -3)
    writer.add_uint64("a.u64", 1 << 40)
    writer.add_int64("a.i64", -(1 << 40))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "Grüße 🙂\n")
    writer.add_array("a.texts", ["x", "", "漢字"])
    writer.add_array("a.floats", [1.5, -2.5])
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_tensor("first", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("second", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "model.gguf")


def test_every_kind_of_value_is_read(file: Path) -> None:
    values = read_head(file).metadata
    found = {key.removeprefix("a."): value for key, value in values.items() if key[:2] == "a."}
    assert found == {
        "u8": 200,
        "i8": -3,
        "u64": 1 << 40,
        "i64": -(1 << 40),
        "f32": 0.5,
        "f64": 0.1,
        "bool": True,
        "text": "Grüße 🙂\n",
        "texts": ["x", "", "漢字"],
        "floats": [1.5, -2.5],
        "numbers": [1, 2, 3],
    }


def test_tensors_are_found_where_their_data_is(file: Path) -> None:
    tensors = read_head(file).tensors
    assert (tensors["first"].shape, tensors["second"].shape) == ((3, 4), (5,))
    assert (tensors["first"].kind, tensors["second"].kind) == (0, 1)
    first = np.fromfile(file, np.float32, 12, offset=tensors["first"].offset)
    second = np.fromfile(file, np.float16, 5, offset=tensors["second"].offset)
    assert (first.tolist(), second.tolist()) == (list(range(12)), list(range(5)))


def test_the_head_of_the_default_model_equals_the_gguf_library(smollm2_path: Path) -> None:
    head, reader = read_head(smollm2_path), gguf.GGUFReader(smollm2_path)
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert head.metadata == {key: field.contents() for key, field in fields.items()}
    assert {
        name: (tensor.offset, tensor.kind, list(tensor.shape))
        for name, tensor in head.tensors.items()
    } == {
        tensor.name: (tensor.data_offset, int(tensor.tensor_type), tensor.shape.tolist()[::-1])
        for tensor in reader.tensors
    }


def test_a_head_is_read_in_a_fraction_of_a_second(smollm2_path: Path) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        read_head(smollm2_path)
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.15


def test_any_cut_off_head_is_refused_by_name(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    end = min(tensor.offset for tensor in read_head(file).tensors.values()) - 32
    cut = tmp_path / "cut.gguf"
    for size in range(0, end, 7):
        cut.write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf is no readable GGUF file") as caught:
            read_head(cut)
        assert "\n" not in str(caught.value)


def value(kind: int, content: bytes) -> bytes:
    return struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind) + content


ALIGNMENT = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, 0)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"PK\x03\x04 a zip file", "does not begin with 'GGUF'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1, known are 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "a count of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + value(99, b""), "the unknown type 99"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + value(9, struct.pack("<IQ", 9, 1)),
            "the unknown type 9",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + value(8, struct.pack("<Q", 1 << 62)),
            "it ends before",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + ALIGNMENT, "no positive integer"),
    ],
)
def test_a_broken_head_says_what_is_wrong(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=fault):
        read_head(path)


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't be read: Is a directory"):
        read_head(tmp_path)
