"""How many blocks a number of tokens takes, and how many tokens a pool can hold."""

from __future__ import annotations

from infer_plugin_api.kv import KVGroup


def window_of(group: KVGroup) -> int | None:
    """Return the tokens a layer of *group* sees, itself included; None for all of them."""
    return group.spec.window if group.spec.kind == "sliding" else None


def blocks_needed(
    groups: tuple[KVGroup, ...], block_size: int, num_tokens: int, chunk: int = 1
) -> int:
    """Return the most blocks one request owns at once while it computes *num_tokens* tokens.

    A sliding group keeps the window before a chunk of *chunk* tokens and the chunk itself, which
    may begin and end inside blocks.
    """
    every = -(-num_tokens // block_size)
    total = 0
    for group in groups:
        window = window_of(group)
        if window is None:
            total += every
        else:
            total += min(every, (window + chunk + block_size - 3) // block_size + 1)
    return total


def max_model_len_that_fits(
    groups: tuple[KVGroup, ...], num_blocks: int, block_size: int, limit: int
) -> int:
    """Return the longest prompt plus answer, at most *limit*, that an empty pool can hold.

    The last token of an answer is never computed, so it takes no space. 0 or 1: nothing fits.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_needed(groups, block_size, middle - 1) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    return low
