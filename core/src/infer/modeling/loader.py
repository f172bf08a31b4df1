"""Loading a model: what an architecture gets to build itself from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from infer.modeling.decoder import Decoder
from infer.modeling.linear import LinearChooser
from infer_plugin_api.attention import AttentionSpec
from infer_plugin_api.errors import ModelError
from infer_plugin_api.linear import LinearContext
from infer_plugin_api.quant import UNQUANTIZED, LinearWeight, Quantizer
from infer_plugin_api.weights import WeightReader

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn
    from infer_plugin_api.models import AttentionFn, DecoderSpec, Model, RopeSpec

    AttentionFactory = Callable[[int, AttentionSpec, RopeSpec], AttentionFn]

Progress = Callable[[int, int], None]
_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """weight_dtype: as weights are kept; dtype: of activations. max_rows: of one step."""

    device: torch.device
    weight_dtype: torch.dtype
    dtype: torch.dtype
    max_rows: int


class LoadingContext:
    """Reads weights as layers ask for them (:class:`infer_plugin_api.models.ModelContext`)."""

    def __init__(
        self,
        reader: WeightReader,
        quantizer: Quantizer,
        linears: LinearChooser,
        target: LoadTarget,
        *,
        attention: AttentionFactory,
        ops: Callable[[str], Callable[..., Any]],
        progress: Progress | None = None,
    ) -> None:
        self.device = target.device
        self.dtype = target.dtype
        self.weight_bytes = 0
        self._reader = reader
        self._quantizer = quantizer
        self._linears = linears
        self._target = target
        self._attention = attention
        self._ops = ops
        self._stored = reader.tensors()
        self._meter = _Meter(sum(info.nbytes for info in self._stored.values()), progress)

    def linear(
        self, names: tuple[str, ...], in_features: int, out_features: int, *, bias: bool
    ) -> LinearFn:
        try:
            weight = self._quantizer.load_linear(self._reader, names, self._target.weight_dtype)
        except KeyError as error:
            raise self._missing(str(error.args[0])) from None
        found = (weight.out_features, weight.in_features)
        if found != (out_features, in_features):
            raise ModelError(
                f"weight of {' + '.join(names)} has shape {list(found)}, "
                f"the config asks for {[out_features, in_features]}"
            )
        self._count(*(f"{name}.weight" for name in names))
        vector = self._bias(names, out_features) if bias else None
        return self._pack(weight, vector)

    def tied_linear(self, weight: torch.Tensor) -> LinearFn:
        return self._pack(LinearWeight(UNQUANTIZED, weight, {}), None)

    def parameter(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return self._read(name, shape, self.dtype)

    def embedding(self, name: str, shape: tuple[int, int]) -> torch.Tensor:
        return self._read(name, shape, self._target.weight_dtype)

    def attention(self, layer: int, spec: AttentionSpec, rope: RopeSpec) -> AttentionFn:
        return self._attention(layer, spec, rope)

    def op(self, name: str) -> Callable[..., Any]:
        return self._ops(name)

    def decoder(self, spec: DecoderSpec) -> Model:
        return Decoder(spec, self)

    def _pack(self, weight: LinearWeight, bias: torch.Tensor | None) -> LinearFn:
        context = LinearContext(
            in_features=weight.in_features,
            out_features=weight.out_features,
            dtype=_name(self.dtype),
            weight_dtype=_name(weight.weight.dtype),
            scheme=weight.scheme.name,
            device=self.device.type,
            max_rows=self._target.max_rows,
        )
        self.weight_bytes += weight.weight.numel() * weight.weight.element_size()
        placed = LinearWeight(
            weight.scheme,
            weight.weight.to(self.device),
            {name: tensor.to(self.device) for name, tensor in weight.extra.items()},
        )
        return self._linears.pack(placed, bias, context)

    def _bias(self, names: tuple[str, ...], out_features: int) -> torch.Tensor:
        parts = [self._tensor(f"{name}.bias") for name in names]
        bias = torch.cat([part.to(self.dtype) for part in parts]).to(self.device)
        if bias.shape != (out_features,):
            raise ModelError(
                f"bias of {' + '.join(names)} has {bias.numel()} values, "
                f"the config asks for {out_features}"
            )
        return bias

    def _read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = self._tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{name} has shape {list(tensor.shape)}, the config asks for {list(shape)}"
            )
        # A tensor of the right dtype may be a view of the mapped file: keep a copy of our own.
        placed = tensor.to(device=self.device, dtype=dtype, copy=True)
        self.weight_bytes += placed.numel() * placed.element_size()
        return placed

    def _tensor(self, name: str) -> torch.Tensor:
        try:
            tensor = self._reader.read(name)
        except KeyError:
            raise self._missing(name) from None
        self._count(name)
        return tensor

    def _missing(self, name: str) -> ModelError:
        return ModelError(
            f"the checkpoint has no tensor {name} ({len(self._stored)} tensors); "
            "the config and the weights do not belong together"
        )

    def _count(self, *names: str) -> None:
        self._meter.add(sum(self._stored[name].nbytes for name in names if name in self._stored))


class _Meter:
    """Tells *progress* bytes done and in all, at most ten times a second."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._told = 0.0

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        now = time.monotonic()
        if self._progress and (now - self._told > _PROGRESS_SECONDS or self._done >= self._total):
            self._told = now
            self._progress(min(self._done, self._total), self._total)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
