"""Conformance of attention backends."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from infer_plugin_api.attention import AttentionBackend, AttentionContext
from infer_plugin_api.descriptors import AttentionDescriptor
from infer_plugin_api.testing.attention_cases import AttentionCase, PagedCase, attention_cases
from infer_plugin_api.testing.numerics import assert_accurate, load_implementation

_MIXED = AttentionCase(heads=(4, 2, 64), requests=((1, 5), (1, 130), (9, 40), (70, 70)))

_CROWD = AttentionCase(
    heads=(9, 3, 64), requests=(*((1, 5 + 37 * index) for index in range(20)), (40, 600))
)
"""More requests than any machine of the tests has threads: backends divide such work otherwise."""


class AttentionConformance:
    """Subclass with the *descriptor* of the backend; override *make* to build it in another way."""

    descriptor: ClassVar[AttentionDescriptor]

    def make(self, context: AttentionContext) -> AttentionBackend:
        backend = load_implementation(self.descriptor)(context)
        assert isinstance(backend, AttentionBackend)
        return backend

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    @pytest.mark.parametrize("case", attention_cases(), ids=str)
    def test_output_is_as_accurate_as_torch(self, case: AttentionCase, dtype: str) -> None:
        paged = self._paged(case, dtype)
        self._assert_right(paged, self._run(paged))

    def test_one_plan_serves_every_layer(self) -> None:
        first = self._paged(_MIXED, self.descriptor.dtypes[0])
        other = PagedCase(_MIXED, self.descriptor.dtypes[0], self.descriptor.dtypes[0], seed=1)
        backend = self.make(first.context)
        metadata = backend.prepare(first.batch)
        first_out, other_out = (torch.empty_like(first.query) for _ in range(2))
        backend.forward(first.query, first.cache, metadata, first_out)
        other.cache = _moved(other, first)
        backend.forward(other.query, other.cache, metadata, other_out)
        self._assert_right(first, first_out)
        self._assert_right(other, other_out)

    def test_backend_serves_one_batch_after_another(self) -> None:
        paged = self._paged(_MIXED, self.descriptor.dtypes[0])
        backend = self.make(paged.context)
        expected = self._run(paged)
        for index in range(len(_MIXED.requests)):
            batch, query = paged.alone(index)
            backend.forward(query, paged.cache, backend.prepare(batch), torch.empty_like(query))
        out = torch.empty_like(paged.query)
        backend.forward(paged.query, paged.cache, backend.prepare(paged.batch), out)
        assert torch.equal(out, expected)

    @pytest.mark.parametrize("case", [_MIXED, _CROWD], ids=["few", "crowd"])
    def test_result_does_not_depend_on_the_batch(self, case: AttentionCase) -> None:
        if not self.descriptor.deterministic:
            pytest.skip("not declared deterministic")
        for dtype in self.descriptor.dtypes:
            paged = self._paged(case, dtype)
            self._assert_right(paged, self._run(paged))
            paged.context = replace(paged.context, deterministic=True)
            together = self._run(paged)
            backend = self.make(paged.context)
            for index in range(len(case.requests)):
                batch, query = paged.alone(index)
                out = torch.empty_like(query)
                backend.forward(query, paged.cache, backend.prepare(batch), out)
                begin, end = paged.batch.query_start_host[index : index + 2]
                assert torch.equal(out, together[begin:end]), f"request {index}, {dtype}"

    def _paged(self, case: AttentionCase, dtype: str) -> PagedCase:
        """Make the case's tensors, or skip what the descriptor doesn't declare."""
        backend, spec = self.descriptor, case.spec
        reasons = (
            (dtype in backend.dtypes and dtype in backend.kv_dtypes, dtype),
            (
                not backend.head_sizes or spec.head_size in backend.head_sizes,
                f"head size {spec.head_size}",
            ),
            (case.page_size % backend.page_multiple == 0, f"page size {case.page_size}"),
            (case.phases <= set(backend.phases), "this phase"),
            (spec.window is None or backend.sliding_window, "sliding windows"),
            (spec.soft_cap is None or backend.soft_cap, "soft caps"),
        )
        for declared, what in reasons:
            if not declared:
                pytest.skip(f"{what} not declared")
        return PagedCase(case, dtype, dtype)

    def _run(self, paged: PagedCase) -> torch.Tensor:
        backend = self.make(paged.context)
        out = torch.full_like(paged.query, float("nan")).contiguous()
        backend.forward(paged.query, paged.cache, backend.prepare(paged.batch), out)
        return out

    def _assert_right(self, paged: PagedCase, out: torch.Tensor) -> None:
        exact, reference = paged.exact(), paged.reference()
        for head in range(exact.shape[1]):
            assert_accurate(out[:, head], exact[:, head], reference[:, head], f"head {head}")


def _moved(case: PagedCase, other: PagedCase) -> torch.Tensor:
    """Return the cache of *case* with its blocks where *other* has them."""
    moved = torch.full_like(other.cache, float("nan"))
    page = case.case.page_size
    for index, (_, length) in enumerate(case.case.requests):
        for entry in range(-(-length // page)):
            source = int(case.batch.block_table[index, entry])
            target = int(other.batch.block_table[index, entry])
            moved[:, target] = case.cache[:, source]
    return moved
