"""Rotary tables: cosines and sines of every position, in float32."""

from __future__ import annotations

import math

import torch

from infer_plugin_api.errors import ModelError
from infer_plugin_api.models import RopeSpec


def cos_sin_table(spec: RopeSpec, device: torch.device) -> torch.Tensor:
    """Return float32 [max_positions, rotary_size]: cosines, then sines.

    Raises ModelError for a scaling it does not know.
    """
    frequencies, factor = _frequencies(spec)
    positions = torch.arange(spec.max_positions, dtype=torch.float32)
    angles = torch.outer(positions, frequencies)
    return (torch.cat((angles.cos(), angles.sin()), dim=-1) * factor).to(device)


def _frequencies(spec: RopeSpec) -> tuple[torch.Tensor, float]:
    """Return float32 [rotary_size / 2] radians per position, and a factor of the table."""
    exponents = torch.arange(0, spec.rotary_size, 2, dtype=torch.int64).float() / spec.rotary_size
    base = 1.0 / (spec.theta**exponents)
    numbers = dict(spec.parameters)
    if spec.scaling == "default":
        return base, 1.0
    if spec.scaling == "linear":
        return base / numbers["factor"], 1.0
    if spec.scaling == "llama3":
        return _llama3(base, numbers), 1.0
    if spec.scaling == "yarn":
        return _yarn(base, spec, numbers)
    raise ModelError(
        f"rope scaling {spec.scaling!r} is not supported; known: default, linear, llama3, yarn"
    )


def _llama3(base: torch.Tensor, numbers: dict[str, float]) -> torch.Tensor:
    """Llama 3.1: long wavelengths are stretched by *factor*, short ones kept, a ramp between."""
    original = numbers["original_max_position_embeddings"]
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    wavelength = 2 * math.pi / base
    ramp = ((original / wavelength - low) / (high - low)).clamp(0, 1)
    stretched = base / numbers["factor"]
    return torch.where(
        wavelength < original / high,
        base,
        torch.where(wavelength > original / low, stretched, (1 - ramp) * stretched + ramp * base),
    )


def _yarn(
    base: torch.Tensor, spec: RopeSpec, numbers: dict[str, float]
) -> tuple[torch.Tensor, float]:
    """YaRN (Peng et al., 2023): interpolate slow dimensions, keep fast ones, scale the table."""
    factor = numbers["factor"]
    original = numbers["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:
        """The dimension that turns *rotations* times over the original length."""
        length = original / (rotations * 2 * math.pi)
        return spec.rotary_size * math.log(length) / (2 * math.log(spec.theta))

    low = dimension(numbers.get("beta_fast", 32.0))
    high = dimension(numbers.get("beta_slow", 1.0))
    if numbers.get("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.rotary_size - 1)
    if low == high:
        high += 0.001
    index = torch.arange(spec.rotary_size // 2, dtype=torch.float32)
    ramp = ((index - low) / (high - low)).clamp(0, 1)
    scale = numbers.get("attention_factor")
    return base / factor * ramp + base * (1 - ramp), scale or _yarn_scale(factor, numbers)


def _yarn_scale(factor: float, numbers: dict[str, float]) -> float:
    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if "mscale" in numbers and "mscale_all_dim" in numbers:
        return scale(numbers["mscale"]) / scale(numbers["mscale_all_dim"])
    return scale(1.0)
