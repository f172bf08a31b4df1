"""The built-in providers, against the conformance kits that third parties' are tested with."""

from __future__ import annotations

from infer.plugins import builtin
from infer_plugin_api.testing.attention import AttentionConformance
from infer_plugin_api.testing.linear import LinearConformance
from infer_plugin_api.testing.ops import op_suites

_ATTENTION = {backend.name: backend for backend in builtin.infer_attention_backends()}
_LINEAR = {kernel.name: kernel for kernel in builtin.infer_linear_kernels()}


class TestSDPA(AttentionConformance):
    descriptor = _ATTENTION["sdpa"]


class TestPaged(AttentionConformance):
    descriptor = _ATTENTION["paged"]


class TestTorchLinear(LinearConformance):
    descriptor = _LINEAR["torch"]


class TestOneDNNLinear(LinearConformance):
    descriptor = _LINEAR["onednn"]


globals().update(op_suites(builtin.infer_ops()))
