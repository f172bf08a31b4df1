"""The engines that can be compared, behind one function: token ids in, token ids out."""

from __future__ import annotations

import os
from collections.abc import Callable

Generate = Callable[[list[list[int]], int], list[list[int]]]
Engine = tuple[Generate, str]
HF_BATCH = 16


def infer(model: str, dtype: str, threads: int, prefix_cache: bool) -> Engine:
    from infer import LLM, SamplingParams
    from infer.version import infer_version

    llm = LLM(
        model,
        dtype=dtype,
        cpu_threads=threads,
        enable_prefix_caching=prefix_cache,
        max_model_len=2048,
        max_num_seqs=64,
    )

    def generate(prompts: list[list[int]], count: int) -> list[list[int]]:
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)
        return [output.outputs[0].token_ids for output in outputs]

    return generate, f"infer {infer_version()}"


def vllm(model: str, dtype: str, threads: int, prefix_cache: bool) -> Engine:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
    import vllm as package

    llm = package.LLM(
        model=model,
        dtype=dtype,
        enable_prefix_caching=prefix_cache,
        max_model_len=2048,
        max_num_seqs=64,
        seed=0,
    )

    def generate(prompts: list[list[int]], count: int) -> list[list[int]]:
        params = package.SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        outputs = llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    return generate, f"vllm {package.__version__}"


def transformers(model: str, dtype: str, threads: int, prefix_cache: bool) -> Engine:
    """``generate`` with left padding, sorted by length into batches of 16; no prefix cache."""
    import torch
    import transformers as package

    torch.set_num_threads(threads)
    loaded = package.AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    ).eval()

    def batch(prompts: list[list[int]], count: int) -> list[list[int]]:
        width = max(len(ids) for ids in prompts)
        padded = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        with torch.inference_mode():
            output = loaded.generate(
                input_ids=padded,
                attention_mask=mask,
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        return [row[width:].tolist() for row in output]

    def generate(prompts: list[list[int]], count: int) -> list[list[int]]:
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        outputs: dict[int, list[int]] = {}
        for begin in range(0, len(order), HF_BATCH):
            part = order[begin : begin + HF_BATCH]
            outputs |= zip(part, batch([prompts[i] for i in part], count), strict=True)
        return [outputs[index] for index in range(len(prompts))]

    return generate, f"transformers {package.__version__}"


ENGINES: dict[str, Callable[[str, str, int, bool], Engine]] = {
    "infer": infer,
    "vllm": vllm,
    "transformers": transformers,
}
