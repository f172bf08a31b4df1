"""Descriptors: what a declaration hook returns, one frozen dataclass per slot.

A descriptor is cheap, picklable data. It names its implementation as ``"package.module:Class"``
and is imported only when selection has chosen it, so declaring a provider imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

ANY: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class PluginInfo:
    """What a plugin says of itself; the module attribute ``infer_plugin`` of its entry point.

    api_version: ``major.minor`` of the plugin API it was built for.
    requires, conflicts: names of other plugins that must (not) be active beside it.
    opt_in: True for plugins with side effects; they are active only when the operator names them.
    """

    api_version: str
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    opt_in: bool = False


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Fields that every descriptor has.

    name: the word users type to choose it; unique in its slot.
    implementation: ``"package.module:Class"``, resolved when the provider is chosen.
    summary: one line for ``infer plugins``.
    priority: breaks ties between eligible providers; higher wins.
    requires_modules: top-level modules that must be importable, e.g. ``("numba",)``.
    install_hint: what to type when one of them is missing.
    options: a frozen dataclass type with the provider's own options, or None.
    prepare: ``"package.module:function"`` that compiles or tunes ahead of time, called as
        ``function(context: PrepareContext) -> None`` by ``infer tune``, once for all providers
        that name it. Raises an exception when the work fails.
    is_prepared: ``"package.module:function"`` called as ``function() -> bool`` at every start, so
        it must be cheap and import no torch. Providers that aren't prepared are listed as "not
        ready: run `infer tune`" and never chosen: nothing is compiled on the start path.
    """

    slot: ClassVar[str] = ""

    name: str
    implementation: str
    summary: str = ""
    priority: int = 0
    requires_modules: tuple[str, ...] = ()
    install_hint: str = ""
    options: type[Any] | None = None
    prepare: str = ""
    is_prepared: str = ""

    def problems(self) -> list[str]:
        """Return what is wrong with the declared values; empty when the descriptor is sound."""
        found = []
        if not self.slot:
            found.append(f"{type(self).__name__} names no slot")
        if not isinstance(self.name, str) or not self.name or ":" in self.name:
            found.append(f"name {self.name!r} must be a non-empty string without ':'")
        module, _, attribute = str(self.implementation).partition(":")
        if not module or not attribute:
            found.append(f"implementation {self.implementation!r} must be 'package.module:Class'")
        for field_name in ("prepare", "is_prepared"):
            reference = str(getattr(self, field_name))
            module, _, attribute = reference.partition(":")
            if reference and not (module and attribute):
                found.append(f"{field_name} {reference!r} must be 'package.module:function'")
        if bool(self.prepare) != bool(self.is_prepared):
            found.append("prepare and is_prepared must be declared together")
        if not isinstance(self.priority, int):
            found.append(f"priority {self.priority!r} must be an integer")
        for field in fields(self):
            value = getattr(self, field.name)
            if str(field.type).startswith("tuple") and not isinstance(value, tuple):
                found.append(f"{field.name} must be a tuple, not {type(value).__name__}")
        return found


@dataclass(frozen=True, kw_only=True)
class PlatformDescriptor(Provider):
    """A kind of device. Implementation: :class:`~infer_plugin_api.platform.Platform`."""

    slot: ClassVar[str] = "platform"


@dataclass(frozen=True, kw_only=True)
class AttentionDescriptor(Provider):
    """Attention over the paged KV cache.

    Implementation: :class:`~infer_plugin_api.attention.AttentionBackend`.
    dtypes: activation dtypes; kv_dtypes: cache dtypes; head_sizes: empty means any.
    page_multiple: a page (tokens per block) must be a multiple of this.
    phases: ``"prefill"``, ``"decode"`` or both; a step that mixes them needs both.
    deterministic: a request's result does not depend on what else is in the batch.
    """

    slot: ClassVar[str] = "attention"

    platforms: tuple[str, ...] = ANY
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    kv_dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    head_sizes: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ("nhd",)
    page_multiple: int = 1
    phases: tuple[str, ...] = ("prefill", "decode")
    sliding_window: bool = False
    soft_cap: bool = False
    deterministic: bool = False
    graph_safe: bool = False


@dataclass(frozen=True, kw_only=True)
class LinearKernelDescriptor(Provider):
    """A way to compute ``x @ W.T + b``.

    Implementation: :class:`~infer_plugin_api.linear.LinearKernel`.
    schemes: names of the :class:`~infer_plugin_api.quant.QuantScheme` it accepts.
    activation_dtypes, weight_dtypes: of unquantized weights.
    min_rows, max_rows: range of M (rows of x) it is meant for; max_rows 0 means no limit.
    deterministic: a row's result does not depend on M within that range.
    """

    slot: ClassVar[str] = "linear"

    platforms: tuple[str, ...] = ANY
    schemes: tuple[str, ...] = ("none",)
    activation_dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    weight_dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    min_rows: int = 1
    max_rows: int = 0
    deterministic: bool = False
    graph_safe: bool = False


@dataclass(frozen=True, kw_only=True)
class OpDescriptor(Provider):
    """One fused op, interchangeable with core's torch reference of the same ``op`` name.

    Implementation: a class whose instances are called like the reference in
    :mod:`infer_plugin_api.ops`. ``name`` is the provider's, ``op`` what it computes.
    """

    slot: ClassVar[str] = "op"

    op: str
    platforms: tuple[str, ...] = ANY
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    deterministic: bool = True
    graph_safe: bool = False

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.op:
            found.append("op must name a fused op")
        return found


@dataclass(frozen=True, kw_only=True)
class ArchitectureDescriptor(Provider):
    """A model family.

    Implementation: :class:`~infer_plugin_api.models.ModelArchitecture`.
    architectures: values of ``architectures`` in a Hugging Face config that it serves.
    """

    slot: ClassVar[str] = "architecture"

    architectures: tuple[str, ...]

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.architectures:
            found.append("architectures must name at least one architecture")
        return found


@dataclass(frozen=True, kw_only=True)
class QuantizerDescriptor(Provider):
    """Reads one way of storing weights. Implementation: :class:`~infer_plugin_api.quant.Quantizer`.

    methods: values of ``quantization_config.quant_method`` that it reads; ``"none"`` means plain.
    """

    slot: ClassVar[str] = "quantizer"

    methods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WeightFormatDescriptor(Provider):
    """A file format of checkpoints.

    Implementation: :class:`~infer_plugin_api.weights.WeightFormat`.
    suffixes: file name endings it reads, e.g. ``(".safetensors",)``.
    """

    slot: ClassVar[str] = "weight_format"

    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SamplerDescriptor(Provider):
    """Turns logits into token ids. Implementation: :class:`~infer_plugin_api.sampling.Sampler`."""

    slot: ClassVar[str] = "sampler"

    platforms: tuple[str, ...] = ANY
    deterministic: bool = True


@dataclass(frozen=True, kw_only=True)
class LogitsProcessorDescriptor(Provider):
    """Changes one request's logits; a request names it in ``SamplingParams.logits_processors``.

    Implementation: :class:`~infer_plugin_api.sampling.LogitsProcessor`.
    needs_token_ids_on_host: it reads the tokens generated so far, so the step's sampling waits
    until the previous step's ids have reached the host.
    """

    slot: ClassVar[str] = "logits_processor"

    needs_token_ids_on_host: bool = False


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicyDescriptor(Provider):
    """Orders requests. Implementation: :class:`~infer_plugin_api.scheduling.SchedulingPolicy`."""

    slot: ClassVar[str] = "scheduling_policy"


@dataclass(frozen=True, kw_only=True)
class ExecutorDescriptor(Provider):
    """Runs step plans on workers. Implementation: :class:`~infer_plugin_api.execution.Executor`."""

    slot: ClassVar[str] = "executor"


@dataclass(frozen=True, kw_only=True)
class ModelSourceDescriptor(Provider):
    """Finds a model by name. Implementation: :class:`~infer_plugin_api.sources.ModelSource`.

    Sources are asked in order of priority; the first that knows the name serves it.
    default_model: the name that ``infer serve`` without a model uses, or empty.
    """

    slot: ClassVar[str] = "model_source"

    default_model: str = ""


DESCRIPTORS: tuple[type[Provider], ...] = (
    PlatformDescriptor,
    AttentionDescriptor,
    LinearKernelDescriptor,
    OpDescriptor,
    ArchitectureDescriptor,
    QuantizerDescriptor,
    WeightFormatDescriptor,
    SamplerDescriptor,
    LogitsProcessorDescriptor,
    SchedulingPolicyDescriptor,
    ExecutorDescriptor,
    ModelSourceDescriptor,
)
"""Every descriptor type, in the order of ``infer plugins``."""
