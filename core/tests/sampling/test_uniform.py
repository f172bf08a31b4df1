import torch
from hypothesis import given
from hypothesis import strategies as st

from infer.sampling.uniform import signed_seed, uniform

WORD = 2**64


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


def exact(seed: int, position: int) -> float:
    gamma = 0x9E3779B97F4A7C15
    state = mix((seed + gamma) % WORD)
    return (mix((state + (position + 1) * gamma) % WORD) >> 11) / 2**53


def number(seed: int, position: int) -> float:
    return float(uniform(torch.tensor([signed_seed(seed)]), torch.tensor([position]))[0])


def test_published_splitmix64_stream_is_reproduced() -> None:
    # The first outputs of the reference generator from state 0: our mixing of a seed is its step.
    gamma = 0x9E3779B97F4A7C15
    assert mix(gamma) == 0xE220A8397B1DCDAF
    assert mix(2 * gamma % WORD) == 0x6E789E6AA1B965F4


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31))
def test_numbers_equal_exact_integer_arithmetic(seed: int, position: int) -> None:
    assert number(seed, position) == exact(seed, position)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(0, 10**6)), min_size=1))
def test_a_batch_gives_each_row_its_own_number(pairs: list[tuple[int, int]]) -> None:
    seeds = torch.tensor([signed_seed(seed) for seed, _ in pairs])
    positions = torch.tensor([position for _, position in pairs])
    assert uniform(seeds, positions).tolist() == [exact(*pair) for pair in pairs]


def test_negative_seed_is_the_same_as_its_unsigned_form() -> None:
    assert number(-1, 5) == number(2**64 - 1, 5)


def test_numbers_are_spread_evenly_over_positions_and_over_seeds() -> None:
    count = 100_000
    index = torch.arange(count)
    for numbers in (uniform(torch.zeros_like(index), index), uniform(index, index * 0 + 7)):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        bins = torch.histc(numbers.float(), bins=100, min=0, max=1)
        chi_square = float(((bins - count / 100) ** 2 / (count / 100)).sum())
        assert 55 < chi_square < 155, "99 degrees of freedom: outside 1e-3 on either side"


def test_neighbouring_streams_are_uncorrelated() -> None:
    index = torch.arange(50_000)
    first = uniform(torch.zeros_like(index), index) - 0.5
    for other in (
        uniform(torch.ones_like(index), index),
        uniform(torch.zeros_like(index), index + 1),
    ):
        correlation = float((first * (other - 0.5)).mean()) * 12
        assert abs(correlation) < 4 / 50_000**0.5
