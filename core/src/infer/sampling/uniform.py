"""A counter-based random number: a pure function of (seed, position).

SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
the state of a request's stream is the mixed seed, and the number at a position is the mixed state
after that many steps. Nothing is stored, so a request may be preempted, moved to another row or
drawn out of order and still gets the same numbers, on every device.
"""

from __future__ import annotations

import torch

_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_STEP_TO_UNIT = 2.0**-53


def uniform(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return float64 [S] in [0, 1), multiples of 2**-53, from int64 [S] seeds and positions.

    Integers wrap around as unsigned 64-bit ones do; :func:`signed_seed` maps wider seeds.
    """
    state = _mix(seeds + _signed(_GAMMA))
    bits = _mix(state + (positions + 1) * _signed(_GAMMA))
    return _shift_right(bits, 11).double() * _STEP_TO_UNIT


def signed_seed(seed: int) -> int:
    """Return *seed* modulo 2**64 as a signed 64-bit integer, for an int64 tensor."""
    return _signed(seed % 2**64)


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift_right(x, 30)) * _signed(_FIRST)
    x = (x ^ _shift_right(x, 27)) * _signed(_SECOND)
    return x ^ _shift_right(x, 31)


def _shift_right(x: torch.Tensor, places: int) -> torch.Tensor:
    """Shift in zeros, not copies of the sign."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _signed(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
