"""The block formats of GGUF, to float32, a whole tensor at a time.

A tensor is a row of blocks: 32 or 256 weights of few bits with scales of their own. The result of
every function equals the reference (``gguf.quants``) bit for bit, in less than half of its time;
the types that are not here are left to it. numpy on one thread: the work is bound by memory, and
many short parallel steps stall for milliseconds each when other programs use the cores.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Dequantize = Callable[[Bytes], Floats]
"""Takes [blocks, bytes of a block], returns [blocks, weights of a block]."""


def _half(blocks: Bytes, begin: int) -> Floats:
    """Return the float16 number at *begin* of every block [blocks, 1]."""
    return blocks[:, begin : begin + 2].copy().view(np.float16).astype(np.float32)


def _signed(bytes_: Bytes) -> Floats:
    return bytes_.view(np.int8).astype(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """Return the low halves of bytes [blocks, n], then the high ones [blocks, 2 n]."""
    values = np.empty((packed.shape[0], 2, packed.shape[1]), np.float32)
    values[:, 0] = packed & 15
    values[:, 1] = packed >> 4
    return values.reshape(packed.shape[0], -1)


def _fifth_bits(blocks: Bytes, begin: int) -> Floats:
    """Return 32 bits of every block, each worth 16 [blocks, 32]."""
    bits = np.unpackbits(blocks[:, begin : begin + 4], axis=1, bitorder="little")
    return bits.astype(np.float32) * np.float32(16)


def _q4_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 2:])
    values -= 8
    values *= _half(blocks, 0)
    return values


def _q4_1(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 4:])
    values *= _half(blocks, 0)
    values += _half(blocks, 2)
    return values


def _q5_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 6:])
    values += _fifth_bits(blocks, 2)
    values -= 16
    values *= _half(blocks, 0)
    return values


def _q5_1(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 8:])
    values += _fifth_bits(blocks, 4)
    values *= _half(blocks, 0)
    values += _half(blocks, 2)
    return values


def _q8_0(blocks: Bytes) -> Floats:
    values = _signed(blocks[:, 2:])
    values *= _half(blocks, 0)
    return values


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Unpack 8 scales and 8 minima of 6 bits each; return them times their factors [blocks, 8, 1].

    Bytes 4 to 16: the first four of either in the low 6 bits of four bytes each; of the last four
    the low 4 bits share bytes, the high 2 bits are on top of the first ones.
    """
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=1)
    first = scales.astype(np.float32) * _half(blocks, 0)
    second = minima.astype(np.float32) * _half(blocks, 2)
    return first[..., None], second[..., None]


def _quarters(packed: Bytes) -> Floats:
    """Return nibbles of bytes [blocks, 128] in groups of 32 [blocks, 8, 32]."""
    return _nibbles(packed.reshape(-1, 32)).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes) -> Floats:
    scales, minima = _scales_and_minima(blocks)
    values = _quarters(blocks[:, 16:])
    values *= scales
    values -= minima
    return values.reshape(-1, 256)


def _q5_k(blocks: Bytes) -> Floats:
    scales, minima = _scales_and_minima(blocks)
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    values = _quarters(blocks[:, 48:])
    values += ((blocks[:, None, 16:48] >> shifts) & 1) << 4
    values *= scales
    values -= minima
    return values.reshape(-1, 256)


def _q6_k(blocks: Bytes) -> Floats:
    count = blocks.shape[0]
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    values = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(count, 2, 4, 32)
    values += ((blocks[:, 128:192].reshape(count, 2, 1, 32) >> shifts) & 3) << 4
    values -= 32
    scales = _signed(blocks[:, 192:208]) * _half(blocks, 208)
    return (values.reshape(count, 16, 16) * scales[..., None]).reshape(-1, 256)


DEQUANTIZE: dict[str, Dequantize] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
