"""Choosing and packing linear kernels, per shape and range of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from infer.plugins.registry import Registered, Registry
from infer.plugins.selection import select
from infer_plugin_api.descriptors import ANY, LinearKernelDescriptor
from infer_plugin_api.linear import LinearContext, LinearKernel
from infer_plugin_api.quant import LinearWeight

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn


@dataclass(frozen=True)
class _Range:
    """Rows from *low* on are computed by *kernel*."""

    low: int
    kernel: Registered


class LinearChooser:
    """Knows which kernel serves which layer; packs weights for it.

    wanted: the user's choice, used for every layer. deterministic: only kernels whose rows do not
    depend on their number, one for all row counts.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        platform: str,
        wanted: str | None,
        deterministic: bool,
    ) -> None:
        self.registry = registry
        self.platform = platform
        self.wanted = wanted
        self.deterministic = deterministic
        self.chosen: dict[LinearContext, tuple[_Range, ...]] = {}
        self._kernels: dict[str, LinearKernel] = {}

    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> LinearFn:
        """Return x [M, in] -> y [M, out]. Raises UserError when no kernel can serve the layer."""
        if context not in self.chosen:
            self.chosen[context] = self._choose(context)
        packed = [
            (part.low, self._kernel(part.kernel).pack(weight, bias, context))
            for part in self.chosen[context]
        ]
        return packed[0][1] if len(packed) == 1 else _by_rows(packed)

    def report(self) -> dict[str, str]:
        """Return what serves the slot: one entry, or one per range of rows and shape."""
        names = {
            (part.low, part.kernel.qualified) for parts in self.chosen.values() for part in parts
        }
        if len({name for _, name in names}) == 1:
            return {"linear": next(iter(names))[1]}
        return {
            f"linear[{context.in_features}x{context.out_features}, M>={part.low}]": (
                part.kernel.qualified
            )
            for context, parts in self.chosen.items()
            for part in parts
        }

    def _kernel(self, registered: Registered) -> LinearKernel:
        if registered.qualified not in self._kernels:
            self._kernels[registered.qualified] = self.registry.load(registered)()
        return self._kernels[registered.qualified]

    def _choose(self, context: LinearContext) -> tuple[_Range, ...]:
        starts = {1}
        for candidate in self.registry.providers("linear"):
            descriptor = candidate.descriptor
            assert isinstance(descriptor, LinearKernelDescriptor)
            starts |= {descriptor.min_rows, descriptor.max_rows + 1 if descriptor.max_rows else 1}
        parts: list[_Range] = []
        for low in sorted(start for start in starts if start <= context.max_rows):
            selection = select(self.registry, "linear", self.wanted, self._refusal(context, low))
            if not parts or parts[-1].kernel != selection.chosen:
                parts.append(_Range(low, selection.chosen))
        return tuple(parts)

    def _refusal(self, context: LinearContext, rows: int) -> Callable[[Registered], str | None]:
        def refusal(candidate: Registered) -> str | None:
            descriptor = candidate.descriptor
            assert isinstance(descriptor, LinearKernelDescriptor)
            declared = self._declared_refusal(descriptor, context, rows)
            return declared or self._kernel(candidate).supports(context)

        return refusal

    def _declared_refusal(
        self, kernel: LinearKernelDescriptor, context: LinearContext, rows: int
    ) -> str | None:
        if kernel.platforms != ANY and self.platform not in kernel.platforms:
            return f"runs on {', '.join(kernel.platforms)}, not on {self.platform}"
        if context.scheme not in kernel.schemes:
            return f"knows the schemes {', '.join(kernel.schemes)}, not {context.scheme}"
        if context.dtype not in kernel.activation_dtypes:
            return f"takes activations of {', '.join(kernel.activation_dtypes)}"
        if context.weight_dtype not in kernel.weight_dtypes:
            return f"takes weights of {', '.join(kernel.weight_dtypes)}"
        if self.deterministic and not kernel.deterministic:
            return "its results depend on the batch"
        if rows < kernel.min_rows or (kernel.max_rows and rows > kernel.max_rows):
            limit = kernel.max_rows or "any number of"
            return f"is meant for {kernel.min_rows} to {limit} rows, not {rows}"
        return None


def _by_rows(packed: list[tuple[int, LinearFn]]) -> LinearFn:
    """Dispatch on the number of rows; *packed* is sorted by its lower limits."""

    def linear(x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        chosen = packed[0][1]
        for low, function in packed:
            if rows < low:
                break
            chosen = function
        return chosen(x)

    return linear
