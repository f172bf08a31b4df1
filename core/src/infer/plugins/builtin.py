"""Core's own providers; they come through the same door as everyone's."""

from __future__ import annotations

from infer_plugin_api import (
    API_VERSION,
    ArchitectureDescriptor,
    AttentionDescriptor,
    ExecutorDescriptor,
    LinearKernelDescriptor,
    ModelSourceDescriptor,
    OpDescriptor,
    PlatformDescriptor,
    PluginInfo,
    QuantizerDescriptor,
    SamplerDescriptor,
    SchedulingPolicyDescriptor,
    WeightFormatDescriptor,
    hookimpl,
)

infer_plugin = PluginInfo(api_version=API_VERSION)

_OPS = {
    "rms_norm": "RmsNorm",
    "add_rms_norm": "AddRmsNorm",
    "silu_mul": "SiluMul",
    "rope_store_kv": "RopeStoreKV",
    "greedy_sample": "GreedySample",
}
_FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


@hookimpl
def infer_platforms() -> list[PlatformDescriptor]:
    return [
        PlatformDescriptor(
            name="cpu",
            implementation="infer.execution.platforms.cpu:CPUPlatform",
            summary="the processor",
        ),
        PlatformDescriptor(
            name="cuda",
            implementation="infer.execution.platforms.cuda:CUDAPlatform",
            summary="NVIDIA GPUs",
            priority=10,
        ),
    ]


@hookimpl
def infer_model_sources() -> list[ModelSourceDescriptor]:
    return [
        ModelSourceDescriptor(
            name="local",
            implementation="infer.modeling.providers.local_source:LocalSource",
            summary="a folder or a .gguf file on this machine",
            priority=100,
        ),
        ModelSourceDescriptor(
            name="hub",
            implementation="infer.modeling.providers.hub_source:HubSource",
            summary="the Hugging Face hub",
            priority=-100,
        ),
    ]


@hookimpl
def infer_weight_formats() -> list[WeightFormatDescriptor]:
    return [
        WeightFormatDescriptor(
            name="safetensors",
            implementation="infer.modeling.providers.safetensors_format:SafetensorsFormat",
            suffixes=(".safetensors",),
            summary="safetensors, single or sharded",
        ),
        WeightFormatDescriptor(
            name="gguf",
            implementation="infer.modeling.providers.gguf_format:GGUFFormat",
            suffixes=(".gguf",),
            summary="GGUF, dequantized when loaded",
        ),
        WeightFormatDescriptor(
            name="dummy",
            implementation="infer.modeling.providers.dummy_format:DummyFormat",
            summary="random weights, for measuring",
        ),
    ]


@hookimpl
def infer_model_architectures() -> list[ArchitectureDescriptor]:
    return [
        ArchitectureDescriptor(
            name=name,
            implementation=f"infer.modeling.families.{name}:{cls}",
            architectures=(f"{cls}ForCausalLM",),
            summary=f"{cls} and models of its shape",
        )
        for name, cls in _FAMILIES.items()
    ]


@hookimpl
def infer_quantizers() -> list[QuantizerDescriptor]:
    return [
        QuantizerDescriptor(
            name="unquantized",
            implementation="infer.modeling.providers.unquantized:Unquantized",
            methods=("none",),
            summary="plain floating-point weights",
        )
    ]


@hookimpl
def infer_attention_backends() -> list[AttentionDescriptor]:
    return [
        AttentionDescriptor(
            name="sdpa",
            implementation="infer.execution.attention.sdpa:SDPABackend",
            summary="torch SDPA over gathered keys, any device",
            sliding_window=True,
            soft_cap=True,
            deterministic=True,
        ),
        AttentionDescriptor(
            name="paged",
            implementation="infer.execution.attention.paged:PagedCPUBackend",
            summary="torch over the cache in place",
            platforms=("cpu",),
            sliding_window=True,
            soft_cap=True,
            priority=10,
        ),
    ]


@hookimpl
def infer_linear_kernels() -> list[LinearKernelDescriptor]:
    return [
        LinearKernelDescriptor(
            name="torch",
            implementation="infer.execution.linears.torch_linear:TorchLinear",
            summary="torch.nn.functional.linear",
        ),
        LinearKernelDescriptor(
            name="onednn",
            implementation="infer.execution.linears.onednn:OneDNNLinear",
            summary="oneDNN with weights packed once",
            platforms=("cpu",),
            activation_dtypes=("float32", "bfloat16"),
            deterministic=True,
            priority=10,
        ),
    ]


@hookimpl
def infer_ops() -> list[OpDescriptor]:
    return [
        OpDescriptor(
            name="torch",
            op=op,
            implementation=f"infer.execution.ops.torch_ops:{cls}",
            summary=f"{op} in torch",
        )
        for op, cls in _OPS.items()
    ]


@hookimpl
def infer_samplers() -> list[SamplerDescriptor]:
    return [
        SamplerDescriptor(
            name="torch",
            implementation="infer.sampling.torch_sampler:TorchSampler",
            summary="top-k, top-p, min-p and inverse-transform draws in torch",
        )
    ]


@hookimpl
def infer_scheduling_policies() -> list[SchedulingPolicyDescriptor]:
    return [
        SchedulingPolicyDescriptor(
            name="fcfs",
            implementation="infer.scheduling.policies:FCFS",
            summary="first come, first served",
        ),
        SchedulingPolicyDescriptor(
            name="priority",
            implementation="infer.scheduling.policies:Priority",
            summary="lower priority numbers first; they may take a running request's slot",
        ),
    ]


@hookimpl
def infer_executors() -> list[ExecutorDescriptor]:
    return [
        ExecutorDescriptor(
            name="inline",
            implementation="infer.execution.inline:InlineExecutor",
            summary="one worker on a thread of the engine's process",
        )
    ]
