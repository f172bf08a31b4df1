"""The attention kit accepts a right backend and sees through wrong ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from infer_plugin_api import AttentionDescriptor
from infer_plugin_api.attention import AttentionBackend, AttentionBatch, AttentionSpec
from infer_plugin_api.testing.attention import AttentionConformance
from infer_plugin_api.testing.attention_cases import attention, attention_cases


class Plain(AttentionBackend):
    """Gathers each request's keys; the methods below are where mutants differ."""

    def prepare(self, batch: AttentionBatch) -> AttentionBatch:
        return batch

    def length(self, batch: AttentionBatch, index: int) -> int:
        return batch.seq_lens_host[index]

    def spec(self) -> AttentionSpec:
        return self.context.spec

    def adjust(self, result: torch.Tensor, batch: AttentionBatch) -> torch.Tensor:
        return result

    def forward(
        self, query: torch.Tensor, kv_cache: torch.Tensor, metadata: Any, out: torch.Tensor
    ) -> None:
        page = self.context.page_size
        for index in range(len(metadata.seq_lens_host)):
            begin, end = metadata.query_start_host[index : index + 2]
            at = torch.arange(self.length(metadata, index))
            block = metadata.block_table[index].long()[at // page]
            keys, values = (kv_cache[half][block, at % page].to(query.dtype) for half in (0, 1))
            result = attention(query[begin:end], keys, values, self.spec())
            out[begin:end] = self.adjust(result, metadata)


class ReadsTheWholeLastPage(Plain):
    def length(self, batch: AttentionBatch, index: int) -> int:
        page = self.context.page_size
        return -(-batch.seq_lens_host[index] // page) * page


class MissesTheFirstKey(Plain):
    def spec(self) -> AttentionSpec:
        return replace(self.context.spec, window=self.context.spec.window or 150)


class WindowIsOneTooWide(Plain):
    def spec(self) -> AttentionSpec:
        window = self.context.spec.window
        return replace(self.context.spec, window=window + 1 if window else None)


class IgnoresTheCap(Plain):
    def spec(self) -> AttentionSpec:
        return replace(self.context.spec, soft_cap=None)


class WrongScale(Plain):
    def spec(self) -> AttentionSpec:
        return replace(self.context.spec, scale=self.context.spec.scale * 1.02)


class MixesUpHeads(Plain):
    def adjust(self, result: torch.Tensor, batch: AttentionBatch) -> torch.Tensor:
        return result.roll(1, dims=1)


class SpoilsOneElement(Plain):
    def adjust(self, result: torch.Tensor, batch: AttentionBatch) -> torch.Tensor:
        result = result.clone()
        result[-1, 0, 0] += 0.5
        return result


class DependsOnTheBatch(Plain):
    def adjust(self, result: torch.Tensor, batch: AttentionBatch) -> torch.Tensor:
        return result * (1 + 1e-6 * len(batch.seq_lens_host))


def kit_of(backend: type[AttentionBackend]) -> AttentionConformance:
    class Kit(AttentionConformance):
        descriptor = AttentionDescriptor(
            name="plain",
            implementation="nowhere:Plain",
            dtypes=("float32", "bfloat16"),
            sliding_window=True,
            soft_cap=True,
            deterministic=True,
        )

        def make(self, context: Any) -> AttentionBackend:
            return backend(context)

    return Kit()


def check_all(kit: AttentionConformance) -> None:
    for case in attention_cases():
        for dtype in kit.descriptor.dtypes:
            kit.test_output_is_as_accurate_as_torch(case, dtype)
    kit.test_one_plan_serves_every_layer()
    kit.test_backend_serves_one_batch_after_another()
    for mark in kit.test_result_does_not_depend_on_the_batch.pytestmark:
        for case in mark.args[1]:
            kit.test_result_does_not_depend_on_the_batch(case)


def test_right_backend_passes() -> None:
    check_all(kit_of(Plain))


@pytest.mark.parametrize(
    "mutant",
    [
        ReadsTheWholeLastPage,
        MissesTheFirstKey,
        WindowIsOneTooWide,
        IgnoresTheCap,
        WrongScale,
        MixesUpHeads,
        SpoilsOneElement,
        DependsOnTheBatch,
    ],
)
def test_wrong_backend_fails(mutant: type[AttentionBackend]) -> None:
    with pytest.raises(AssertionError):
        check_all(kit_of(mutant))


def test_backend_that_follows_undefined_entries_fails() -> None:
    class FollowsThem(Plain):
        def length(self, batch: AttentionBatch, index: int) -> int:
            return batch.block_table.shape[1] * self.context.page_size

    with pytest.raises((AssertionError, IndexError)):
        check_all(kit_of(FollowsThem))


def test_undeclared_cases_are_skipped() -> None:
    kit = kit_of(Plain)
    case = next(case for case in attention_cases() if case.window)
    type(kit).descriptor = replace(kit.descriptor, sliding_window=False)
    with pytest.raises(pytest.skip.Exception, match="sliding windows not declared"):
        kit.test_output_is_as_accurate_as_torch(case, "float32")
