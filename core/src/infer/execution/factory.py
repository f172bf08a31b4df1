"""How an executor makes a worker where the worker shall live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infer.config.engine import EngineConfig
from infer.modeling.files import ModelFiles
from infer.plugins.plan import PluginPlan
from infer.plugins.registry import Registry
from infer_plugin_api.execution import Worker


@dataclass(frozen=True)
class WorkerSpec:
    """A :class:`infer_plugin_api.execution.WorkerFactory`.

    config: with resolved dtype, kv_cache_dtype and max_model_len. threads: compute threads.
    registry: of this process, or None where the worker's process loads its own by *plan*.
    progress: told bytes read and in all while the weights load; not sent to other processes.
    """

    config: EngineConfig
    files: ModelFiles
    plan: PluginPlan
    threads: int
    registry: Registry | None = None
    progress: Callable[[int, int], None] | None = None

    def __call__(self, rank: int) -> Worker:
        from infer.execution.worker import ModelWorker

        return ModelWorker(self, rank)
