"""Kernels on torch's threads."""

from __future__ import annotations

import threading

import pytest
import torch

from infer_numba import library as library_module
from infer_numba import openmp
from infer_numba.ops import AddRmsNorm, GreedySample
from infer_plugin_api.errors import UnsupportedError


def test_torch_brings_the_runtime() -> None:
    assert openmp.parallel_region() is not None


def test_kernels_run_on_one_thread_where_there_is_no_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library_module, "parallel_region", lambda: None)
    assert library_module.library().kernel("rms_norm_float32", 2).threads == 1
    logits = torch.randn(64, 50000)
    assert torch.equal(GreedySample()(logits), logits.argmax(-1))


def test_large_work_is_shared_by_threads() -> None:
    x, residual = torch.randn(3000, 576), torch.zeros(3000, 576)
    out = AddRmsNorm()(x, residual, torch.ones(576), 1e-6)
    assert torch.equal(residual, x)
    assert torch.allclose(out, torch.nn.functional.rms_norm(x, (576,), eps=1e-6), atol=1e-5)


def test_one_op_serves_several_python_threads() -> None:
    op, right = GreedySample(), []

    def work(seed: int) -> None:
        logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(seed))
        right.append(all(torch.equal(op(logits), logits.argmax(-1)) for _ in range(50)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert right == [True] * 4


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"greedy_sample is not compiled for torch\.float16"):
        GreedySample()(torch.zeros(1, 8, dtype=torch.float16))


def test_nan_counts_as_the_largest_logit() -> None:
    logits = torch.zeros(3, 3000)
    logits[0, 2999] = logits[1, 17] = float("nan")
    logits[1, 5] = float("inf")
    assert torch.equal(GreedySample()(logits), logits.argmax(-1))
