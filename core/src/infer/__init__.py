"""infer: an LLM inference engine whose parts are plugins.

from infer import LLM, SamplingParams

with LLM("smollm2") as llm:
    print(llm.generate("The sea is", SamplingParams(max_tokens=16))[0].outputs[0].text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infer_plugin_api.sampling import SamplingParams

if TYPE_CHECKING:
    from infer.llm import LLM, AsyncLLM

__all__ = ["LLM", "AsyncLLM", "SamplingParams"]


def __getattr__(name: str) -> Any:
    """Import the engine only when it is asked for: the package itself must stay cheap."""
    if name in ("LLM", "AsyncLLM"):
        from infer import llm

        return getattr(llm, name)
    raise AttributeError(f"module 'infer' has no attribute {name!r}")
