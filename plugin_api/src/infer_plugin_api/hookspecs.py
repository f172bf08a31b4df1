"""Every hook of infer, in the order in which a server meets them.

Declaration hooks return descriptors (:mod:`infer_plugin_api.descriptors`). They run once per
process at start-up, on every rank, before torch is imported; none is on the hot path. All
plugins' answers are joined; a name used twice in a slot is a conflict that the user resolves by
writing ``plugin:name``. Event hooks have many listeners and run off the engine loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infer_plugin_api.markers import hookspec

if TYPE_CHECKING:
    from infer_plugin_api.descriptors import (
        ArchitectureDescriptor,
        AttentionDescriptor,
        ExecutorDescriptor,
        LinearKernelDescriptor,
        LogitsProcessorDescriptor,
        ModelSourceDescriptor,
        OpDescriptor,
        PlatformDescriptor,
        QuantizerDescriptor,
        SamplerDescriptor,
        SchedulingPolicyDescriptor,
        WeightFormatDescriptor,
    )
    from infer_plugin_api.events import EngineEvent, RequestEvent

# -------------------------------------------------------------------------
# Where the engine runs and what it serves
# -------------------------------------------------------------------------


@hookspec
def infer_platforms() -> Sequence[PlatformDescriptor]:
    """Declare kinds of device.

    The available platform with the highest priority is used unless the user names one.

    Called: at start-up, in every process, on every rank. Hot path: no.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_model_sources() -> Sequence[ModelSourceDescriptor]:
    """Declare sources that find a model's files by name.

    Asked in order of priority until one knows the name.

    Called: at start-up, in every process; sources are used in the launcher. Hot path: no.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_weight_formats() -> Sequence[WeightFormatDescriptor]:
    """Declare checkpoint formats.

    The format is chosen by the files' endings, or by ``--load-format``.

    Called: at start-up, in every process, on every rank. Hot path: no.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_model_architectures() -> Sequence[ArchitectureDescriptor]:
    """Declare model families by the architecture names of their configs.

    Called: at start-up, in every process, on every rank. Hot path: no.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_quantizers() -> Sequence[QuantizerDescriptor]:
    """Declare ways of storing weights that can be read into a QuantScheme.

    Chosen by the checkpoint's ``quantization_config``, or by ``--quantization``.

    Called: at start-up, in every process, on every rank. Hot path: no.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


# -------------------------------------------------------------------------
# How it computes
# -------------------------------------------------------------------------


@hookspec
def infer_attention_backends() -> Sequence[AttentionDescriptor]:
    """Declare attention backends over the paged KV cache.

    Called: at start-up, in every process, on every rank. Hot path: no; the backend's ``prepare``
    and ``forward`` are. Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_linear_kernels() -> Sequence[LinearKernelDescriptor]:
    """Declare linear kernels, by scheme and range of rows.

    Called: at start-up, in every process, on every rank. Hot path: no; the packed function is.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_ops() -> Sequence[OpDescriptor]:
    """Declare implementations of fused ops (:mod:`infer_plugin_api.ops`).

    Called: at start-up, in every process, on every rank. Hot path: no; the op is.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_samplers() -> Sequence[SamplerDescriptor]:
    """Declare samplers.

    Called: at start-up, in every process, on every rank. Hot path: no; ``sample`` is.
    Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_logits_processors() -> Sequence[LogitsProcessorDescriptor]:
    """Declare logits processors that requests may name.

    Called: at start-up, in every process, on every rank. Hot path: no; ``apply`` is, for
    requests that name it. Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_scheduling_policies() -> Sequence[SchedulingPolicyDescriptor]:
    """Declare scheduling policies for ``--scheduling-policy``.

    Called: at start-up, in every process; the policy lives in the engine process. Hot path: no;
    ``key`` is called once per request. Results: joined. Since API 1.0.
    """
    raise NotImplementedError


@hookspec
def infer_executors() -> Sequence[ExecutorDescriptor]:
    """Declare executors for ``--distributed-executor-backend``.

    Called: at start-up, in every process; the executor lives in the engine process.
    Hot path: no; ``forward`` and ``sample`` are. Results: joined. Since API 1.0.
    """
    raise NotImplementedError


# -------------------------------------------------------------------------
# Events: many listeners, called off the engine loop through a bounded queue.
# A listener that raises five times is disabled, with its name in the log.
# -------------------------------------------------------------------------


@hookspec
def infer_engine_started(event: EngineEvent) -> None:
    """Learn that the engine is ready to take requests.

    Called: once, in the engine's process. Hot path: no. Results: ignored. Since API 1.0.
    """


@hookspec
def infer_engine_stopped(event: EngineEvent) -> None:
    """Learn that the engine has stopped in order.

    Called: once, in the engine's process. Hot path: no. Results: ignored. Since API 1.0.
    """


@hookspec
def infer_request_received(event: RequestEvent) -> None:
    """Learn that a request was accepted.

    Called: once per request, in the engine's process. Hot path: no. Results: ignored.
    Since API 1.0.
    """


@hookspec
def infer_request_scheduled(event: RequestEvent) -> None:
    """Learn that a request computes for the first time.

    Called: once per request, in the engine's process. Hot path: no. Results: ignored.
    Since API 1.0.
    """


@hookspec
def infer_request_first_token(event: RequestEvent) -> None:
    """Learn that a request has its first token.

    Called: once per request, in the engine's process. Hot path: no. Results: ignored.
    Since API 1.0.
    """


@hookspec
def infer_request_finished(event: RequestEvent) -> None:
    """Learn that a request has finished, was aborted or failed.

    Called: once per request, in the engine's process. Hot path: no. Results: ignored.
    Since API 1.0.
    """
