import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from infer.sampling.ranking import leading

VALUES = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.sampled_from([-np.inf, -3.5, -1.0, -1e-38, 0.0, 1e-38, 0.5, 2.0, np.inf]),
)


@given(VALUES, st.data())
def test_order_is_by_value_then_by_index(values: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, values.shape[1]))
    found, indices = leading(torch.from_numpy(values), count)
    expected = np.argsort(-values, axis=1, kind="stable")[:, :count]
    assert indices.tolist() == expected.tolist()
    assert found.tolist() == np.take_along_axis(values, expected, axis=1).tolist()


@pytest.mark.parametrize("size", [7, 1000, 50_000])
def test_fewer_are_a_prefix_of_more(size: int) -> None:
    # Rounded to bfloat16 there are many ties, at the border too.
    values = torch.randn(3, size, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    _, everything = leading(values, size)
    for count in (1, 5, size // 2, size - 1):
        if count:
            assert torch.equal(leading(values, count)[1], everything[:, :count])


def test_values_are_left_alone() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0]])
    leading(values, 2)
    assert values.tolist() == [[1.0, 3.0, 2.0]]


def test_no_alternatives_are_an_empty_prefix() -> None:
    values, indices = leading(torch.randn(3, 7), 0)
    assert values.shape == indices.shape == (3, 0)
