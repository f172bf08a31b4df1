"""Choosing attention backends and fused ops for one model on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infer.execution.attention.phases import PhasedAttention
from infer.plugins.registry import Registered, Registry
from infer.plugins.selection import select
from infer_plugin_api.attention import AttentionBackend, AttentionContext
from infer_plugin_api.descriptors import ANY, AttentionDescriptor, OpDescriptor


def choose_attention(
    registry: Registry, context: AttentionContext, wanted: str | None
) -> tuple[AttentionBackend, dict[str, str]]:
    """Return the backend for *context* and what was chosen per phase.

    Raises UserError naming every refusal when a phase has no backend.
    """
    chosen = {
        phase: select(registry, "attention", wanted, _attention_refusal(context, phase)).chosen
        for phase in ("decode", "prefill")
    }
    made = {
        registered.qualified: registry.load(registered)(context) for registered in chosen.values()
    }
    decode, prefill = (made[chosen[phase].qualified] for phase in ("decode", "prefill"))
    if decode is prefill:
        return decode, {"attention": chosen["decode"].qualified}
    report = {f"attention[{phase}]": chosen[phase].qualified for phase in chosen}
    return PhasedAttention(decode, prefill), report


def _attention_refusal(context: AttentionContext, phase: str) -> Callable[[Registered], str | None]:
    spec, platform = context.spec, context.device.type

    def refusal(candidate: Registered) -> str | None:
        backend = candidate.descriptor
        assert isinstance(backend, AttentionDescriptor)
        checks = (
            (backend.platforms == ANY or platform in backend.platforms, f"not on {platform}"),
            (phase in backend.phases, f"does not do {phase}"),
            (context.dtype in backend.dtypes, f"no {context.dtype} activations"),
            (context.kv_dtype in backend.kv_dtypes, f"no {context.kv_dtype} cache"),
            (
                not backend.head_sizes or spec.head_size in backend.head_sizes,
                f"no head size {spec.head_size}",
            ),
            ("nhd" in backend.layouts, "another cache layout"),
            (
                context.page_size % backend.page_multiple == 0,
                f"needs pages of a multiple of {backend.page_multiple} tokens",
            ),
            (spec.window is None or backend.sliding_window, "no sliding window"),
            (spec.soft_cap is None or backend.soft_cap, "no soft cap"),
            (
                not context.deterministic or backend.deterministic,
                "its results depend on the batch",
            ),
        )
        return next((reason for holds, reason in checks if not holds), None)

    return refusal


def choose_op(
    registry: Registry, op: str, platform: str, dtype: str, *, deterministic: bool
) -> tuple[Callable[..., Any], str]:
    """Return the implementation of a fused op and its qualified name."""

    def refusal(candidate: Registered) -> str | None:
        provider = candidate.descriptor
        assert isinstance(provider, OpDescriptor)
        if provider.op != op:
            return f"computes {provider.op}"
        if provider.platforms != ANY and platform not in provider.platforms:
            return f"not on {platform}"
        if dtype not in provider.dtypes:
            return f"no {dtype} activations"
        if deterministic and not provider.deterministic:
            return "its results depend on the batch"
        return None

    chosen = select(registry, "op", None, refusal).chosen
    return registry.load(chosen)(), chosen.qualified
