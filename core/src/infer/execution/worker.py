"""A worker: one device with its part of the model, its cache and its runner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from infer.config.errors import EngineError
from infer.execution.cache import allocate_cache
from infer.execution.choose import choose_attention, choose_op
from infer.execution.context import StepContext, attention_layer
from infer.execution.factory import WorkerSpec
from infer.execution.platforms.choose import choose_platform
from infer.execution.rows import RowState
from infer.execution.runner import ModelRunner
from infer.modeling.linear import LinearChooser
from infer.modeling.loader import LoadingContext, LoadTarget
from infer.modeling.rope import cos_sin_table
from infer.plugins.discovery import load_plugins
from infer.plugins.plan import mismatch
from infer.plugins.registry import Registry
from infer.plugins.selection import select
from infer.sampling.state import SamplingState
from infer_plugin_api.attention import AttentionContext, AttentionSpec
from infer_plugin_api.errors import ModelError
from infer_plugin_api.execution import LateInputs, StepPlan, StepResult, WorkerInfo
from infer_plugin_api.kv import KVGroup, block_bytes, group_layers
from infer_plugin_api.models import ModelArchitecture

if TYPE_CHECKING:
    from infer_plugin_api.models import AttentionFn, RopeSpec


class ModelWorker:
    """Implements :class:`infer_plugin_api.execution.Worker`."""

    def __init__(self, spec: WorkerSpec, rank: int) -> None:
        self.spec = spec
        self.config = spec.config
        self.registry = spec.registry or _registry_of(spec)
        self.providers: dict[str, str] = {}
        self.rank = rank
        torch.set_num_threads(spec.threads)
        chosen, self.platform = choose_platform(self.registry, self.config.device)
        self.providers["platform"] = chosen.qualified
        self.device = self.platform.device(rank)
        self.dtype = self.platform.activation_dtype(self.config.dtype)
        self.kv_dtype = self.config.kv_cache_dtype
        self.deterministic = self.config.deterministic or self.dtype == "float32"
        architecture = _architecture_name(spec)
        registered = self.registry.architecture(architecture)
        if registered is None:
            raise ModelError(f"no installed plugin serves the architecture {architecture}")
        self.architecture: ModelArchitecture = self.registry.load(registered)()
        self.info = self.architecture.info(spec.files.config)
        self.groups: tuple[KVGroup, ...] = group_layers(
            tuple(replace(kv, dtype=kv.dtype or self.kv_dtype) for kv in self.info.kv_specs)
        )
        self._group_of = {
            layer: index for index, group in enumerate(self.groups) for layer in group.layers
        }
        self.step = StepContext([])
        self._shared: dict[Any, torch.Tensor] = {}

    @torch.inference_mode()
    def load(self) -> WorkerInfo:
        began = time.perf_counter()
        files = self.spec.files
        linears = LinearChooser(
            self.registry,
            platform=self.device.type,
            wanted=self.config.linear_kernel,
            deterministic=self.deterministic,
        )
        reader = self.registry.instance("weight_format", files.weight_format).open(
            files.path, files.config
        )
        quantizer = self._quantizer()
        context = LoadingContext(
            reader,
            quantizer,
            linears,
            LoadTarget(
                device=self.device,
                weight_dtype=getattr(torch, self.config.dtype),
                dtype=getattr(torch, self.dtype),
                max_rows=self.config.max_num_batched_tokens,
            ),
            attention=self._attention,
            ops=self._op,
            progress=self.spec.progress,
        )
        self.model = self.architecture.build(files.config, context)
        reader.close()
        self.providers |= linears.report()
        return WorkerInfo(
            block_bytes=block_bytes(self.groups, self.config.block_size),
            available_bytes=self.platform.available_memory(self.device),
            weight_bytes=context.weight_bytes,
            load_seconds=time.perf_counter() - began,
            providers=self.providers,
        )

    @torch.inference_mode()
    def allocate(self, num_blocks: int) -> None:
        config = self.config
        max_model_len = config.max_model_len or self.info.max_model_len
        self.step.caches = allocate_cache(self.groups, num_blocks, config.block_size, self.device)
        rows = RowState(
            config.max_num_seqs, max_model_len, config.block_size, len(self.groups), self.device
        )
        sampling = SamplingState(
            max_rows=config.max_num_seqs,
            vocab_size=self.info.vocab_size,
            token_ids=rows.token_ids,
            sampler=self._sampler(),
            greedy=self._op("greedy_sample"),
            processors=self._logits_processor,
        )
        self.runner = ModelRunner(self.model, rows, sampling, self.step, config.block_size)

    def forward(self, plan: StepPlan) -> None:
        self.runner.forward(plan)

    def sample(self, late: LateInputs) -> Callable[[], StepResult]:
        return self.runner.sample(late)

    def close(self) -> None:
        self.step.caches = []

    def _quantizer(self) -> Any:
        config = self.spec.files.config.get("quantization_config") or {}
        method = self.config.quantization or config.get("quant_method", "none")
        for candidate in self.registry.providers("quantizer"):
            if method in getattr(candidate.descriptor, "methods", ()):
                quantizer = self.registry.load(candidate)()
                quantizer.configure(config)
                self.providers["quantizer"] = candidate.qualified
                return quantizer
        raise ModelError(
            f"the weights are quantized by {method!r}, which no installed plugin can read"
        )

    def _sampler(self) -> Any:
        platform = self.device.type

        def refusal(candidate: Any) -> str | None:
            platforms = candidate.descriptor.platforms
            return None if platforms == ("*",) or platform in platforms else f"not on {platform}"

        chosen = select(self.registry, "sampler", self.config.sampler, refusal).chosen
        self.providers["sampler"] = chosen.qualified
        return self.registry.load(chosen)()

    def _logits_processor(self, name: str, context: Any) -> Any:
        return self.registry.load(self.registry.find("logits_processor", name))(context)

    def _op(self, name: str) -> Callable[..., Any]:
        function, qualified = choose_op(
            self.registry,
            name,
            self.device.type,
            self.dtype,
            deterministic=self.deterministic,
        )
        self.providers[f"op[{name}]"] = qualified
        return function

    def _attention(self, layer: int, spec: AttentionSpec, rope: RopeSpec) -> AttentionFn:
        group = self._group_of[layer]
        if group == len(self.step.backends):
            self.step.backends.append(self._backend(spec, group))
        return attention_layer(
            self.step,
            layer,
            group,
            self._op("rope_store_kv"),
            self._once(rope, lambda: cos_sin_table(rope, self.device)),
            self._once(("out", spec.num_heads, spec.head_size), lambda: self._out(spec)),
        )

    def _backend(self, spec: AttentionSpec, group: int) -> Any:
        config = self.config
        max_model_len = config.max_model_len or self.info.max_model_len
        context = AttentionContext(
            spec=spec,
            device=self.device,
            dtype=self.dtype,
            kv_dtype=self.groups[group].spec.dtype,
            page_size=config.block_size,
            max_requests=config.max_num_seqs,
            max_tokens=config.max_num_batched_tokens,
            max_blocks=-(-max_model_len // config.block_size),
            deterministic=self.deterministic,
        )
        backend, report = choose_attention(self.registry, context, config.attention_backend)
        self.providers |= report
        return backend

    def _out(self, spec: AttentionSpec) -> torch.Tensor:
        shape = (self.config.max_num_batched_tokens, spec.num_heads, spec.head_size)
        return torch.zeros(shape, dtype=getattr(torch, self.dtype), device=self.device)

    def _once(self, key: Any, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]


def _architecture_name(spec: WorkerSpec) -> str:
    return str((spec.files.config.get("architectures") or ["none"])[0])


def _registry_of(spec: WorkerSpec) -> Registry:
    """Load this process's plugins; they must be exactly those of the plan."""
    registry = load_plugins(spec.plan.activation)
    if differences := mismatch(spec.plan, registry):
        raise EngineError("plugins differ from the launcher's: " + "; ".join(differences))
    return registry
