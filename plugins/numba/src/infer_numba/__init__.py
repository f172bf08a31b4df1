"""Compiled CPU kernels: paged attention and the fused ops, in float32 and bfloat16.

numba compiles them once, in ``infer tune``; a server loads the stored machine code.
"""

from __future__ import annotations

from typing import Any

from infer_plugin_api import (
    AttentionDescriptor,
    LinearKernelDescriptor,
    OpDescriptor,
    PluginInfo,
    hookimpl,
)

infer_plugin = PluginInfo(api_version="1.0")

_COMMON: dict[str, Any] = {
    "name": "numba",
    "priority": 50,
    "platforms": ("cpu",),
    "dtypes": ("float32", "bfloat16"),
    "deterministic": True,
    "requires_modules": ("numba", "llvmlite"),
    "install_hint": "pip install numba",
    "prepare": "infer_numba.prepare:prepare",
    "is_prepared": "infer_numba.prepare:is_prepared",
}

_OPS = {
    "rms_norm": "RmsNorm",
    "add_rms_norm": "AddRmsNorm",
    "silu_mul": "SiluMul",
    "rope_store_kv": "RopeStoreKV",
    "greedy_sample": "GreedySample",
}


@hookimpl
def infer_attention_backends() -> list[AttentionDescriptor]:
    return [
        AttentionDescriptor(
            **_COMMON,
            implementation="infer_numba.attention:NumbaAttention",
            summary="paged attention compiled for this CPU",
            kv_dtypes=("float32", "bfloat16"),
            sliding_window=True,
            soft_cap=True,
        )
    ]


@hookimpl
def infer_linear_kernels() -> list[LinearKernelDescriptor]:
    kernel = {name: value for name, value in _COMMON.items() if name != "dtypes"}
    return [
        LinearKernelDescriptor(
            **kernel,
            implementation="infer_numba.linear:NumbaLinear",
            summary="linear layers compiled for this CPU",
            activation_dtypes=_COMMON["dtypes"],
        )
    ]


@hookimpl
def infer_ops() -> list[OpDescriptor]:
    return [
        OpDescriptor(
            **_COMMON,
            op=op,
            implementation=f"infer_numba.ops:{name}",
            summary=f"{op} compiled for this CPU",
        )
        for op, name in _OPS.items()
    ]
