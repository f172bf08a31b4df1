"""Plain weights: joined along their outputs, read into one matrix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from infer.modeling.providers.safetensors_format import SafetensorsFormat
from infer.modeling.providers.unquantized import Unquantized
from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import WeightReader


def reader_of(folder: Path, tensors: Mapping[str, torch.Tensor]) -> WeightReader:
    save_file(dict(tensors), folder / "model.safetensors")
    return SafetensorsFormat().open(folder, {})


@pytest.fixture
def parts() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        f"{name}.weight": torch.randn(rows, 8, generator=generator)
        for name, rows in (("q", 6), ("k", 2), ("v", 3))
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_are_joined_along_their_outputs(
    tmp_path: Path, parts: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    weight = Unquantized().load_linear(reader_of(tmp_path, parts), ("v", "q", "k"), dtype)
    expected = torch.cat([parts["v.weight"], parts["q.weight"], parts["k.weight"]]).to(dtype)
    assert torch.equal(weight.weight, expected)
    assert (weight.scheme.name, weight.out_features, weight.in_features) == ("none", 11, 8)


def test_a_matrix_does_not_depend_on_the_file_any_more(
    tmp_path: Path, parts: dict[str, torch.Tensor]
) -> None:
    """A file that is overwritten while it is mapped would change the weights, or end the engine."""
    weight = Unquantized().load_linear(reader_of(tmp_path, parts), ("q",), torch.float32)
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert torch.equal(weight.weight, parts["q.weight"])


def test_a_missing_part_is_a_key_error_with_its_name(
    tmp_path: Path, parts: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(KeyError) as caught:
        Unquantized().load_linear(reader_of(tmp_path, parts), ("q", "o"), torch.float32)
    assert caught.value.args == ("o.weight",)


@pytest.mark.parametrize("shape", [(6, 9), (6,), (6, 8, 1)])
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, parts: dict[str, torch.Tensor], shape: tuple[int, ...]
) -> None:
    tensors = parts | {"odd.weight": torch.zeros(shape)}
    with pytest.raises(ModelError, match=r"q \+ odd: .* can't be joined"):
        Unquantized().load_linear(reader_of(tmp_path, tensors), ("q", "odd"), torch.float32)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_low_bit_weights_are_not_taken_for_plain_ones(tmp_path: Path, dtype: torch.dtype) -> None:
    reader = reader_of(tmp_path, {"q.weight": torch.zeros(2, 8).to(dtype)})
    with pytest.raises(ModelError, match=r"q\.weight is stored as (int8|float8_e4m3fn)"):
        Unquantized().load_linear(reader, ("q",), torch.float32)


def test_a_quantization_config_is_somebody_elses() -> None:
    Unquantized().configure({})
    with pytest.raises(ValueError, match="quant_method 'gptq' is not plain weights"):
        Unquantized().configure({"quant_method": "gptq"})
