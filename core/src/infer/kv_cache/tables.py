"""Block tables: what one request owns."""

from __future__ import annotations

from dataclasses import dataclass

NO_BLOCK = -1
"""Stands in a table where a sliding group owns nothing: positions that left its window."""


@dataclass(frozen=True)
class Match:
    """The longest cached beginning of a request that every group can continue from.

    blocks: per group one id (or NO_BLOCK) for each block of those tokens.
    """

    num_tokens: int
    blocks: list[list[int]]

    def held(self) -> list[int]:
        """Return the ids of all groups."""
        return [block for table in self.blocks for block in table if block != NO_BLOCK]


@dataclass(eq=False, slots=True)
class BlockTables:
    """One running request's blocks.

    blocks: per group the block id of each block index; all groups' tables are equally long.
    first: per group the first index that is still owned; those before are NO_BLOCK.
    capacity: tokens up to the end of the tables. named: blocks offered to the prefix cache.
    room: length in blocks that the tables may reach.
    """

    blocks: list[list[int]]
    first: list[int]
    capacity: int
    named: int
    room: int

    @property
    def num_blocks(self) -> int:
        """Blocks owned, over all groups."""
        return sum(map(len, self.blocks)) - sum(self.first)
