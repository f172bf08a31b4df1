"""The pool of blocks that all KV groups share."""

from __future__ import annotations

from collections.abc import Mapping

from infer.kv_cache.eviction import EvictionPolicy
from infer.kv_cache.free_map import FreeMap


class CacheCorruptError(RuntimeError):
    """The block bookkeeping contradicts itself: a bug in this package, never a user's error."""


class BlockPool:
    """Block ids 0 ... num_blocks - 1. A block is in one of three states:

        owned       at least one table names it
        cached      nobody owns it, its content has a key and can be found again; evictable
        free        nobody owns it and its content means nothing

    An owned block may have a key too: others can share it.
    """

    def __init__(self, num_blocks: int, eviction: EvictionPolicy) -> None:
        self.num_blocks = num_blocks
        self.owners = [0] * num_blocks
        self._free = FreeMap(num_blocks)
        self._eviction = eviction
        self._key_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free) + len(self._eviction)

    @property
    def num_cached(self) -> int:
        """Blocks whose content can be found, owned or not."""
        return len(self._block_of)

    def take(self, count: int, after: int | None, room: int) -> list[int]:
        """Give *count* blocks their first owner; neighbours of *after* where possible.

        room: how many blocks the table may still grow by, these included. Cached content is
        evicted when nothing is free. Raises CacheCorruptError when there are fewer than *count*.
        """
        if count > self.available:
            raise CacheCorruptError(f"{count} blocks were taken with {self.available} available")
        fresh = min(count, len(self._free))
        blocks: list[int] = []
        for taken in range(fresh):
            after = self._free.take(after, room - taken)
            blocks.append(after)
        if fresh < count:
            blocks += sorted(self._evict() for _ in range(count - fresh))
        for block in blocks:
            self.owners[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Add an owner to a block that was found by its key."""
        if self.owners[block] == 0:
            self._eviction.remove(block)
        self.owners[block] += 1

    def give(self, block: int) -> None:
        """Remove an owner; the last one leaves the block cached if it has a key, else free."""
        left = self.owners[block] - 1
        if left < 0:
            raise CacheCorruptError(f"block {block} lost an owner that it did not have")
        self.owners[block] = left
        if left == 0:
            if self._key_of[block] is None:
                self._free.give(block)
            else:
                self._eviction.add(block)

    def end_run(self, last: int) -> None:
        """The table that ends with block *last* will not grow further."""
        self._free.end_run(last)

    def find(self, key: bytes) -> int | None:
        """Return the block whose content has *key*."""
        return self._block_of.get(key)

    def name(self, block: int, key: bytes) -> None:
        """Say what an owned block holds. The first block of equal content is the one found."""
        if self._key_of[block] is None and key not in self._block_of:
            self._key_of[block] = key
            self._block_of[key] = block

    def check(self, owners: Mapping[int, int]) -> None:
        """Raise CacheCorruptError unless states, keys and *owners* (block -> tables) agree."""
        for block in range(self.num_blocks):
            count = owners.get(block, 0)
            key = self._key_of[block]
            if self.owners[block] != count:
                raise CacheCorruptError(
                    f"block {block} counts {self.owners[block]} owners, has {count}"
                )
            if (block in self._free) != (count == 0 and key is None):
                raise CacheCorruptError(
                    f"block {block} is wrongly free or not free ({count} owners)"
                )
            if key is not None and self._block_of.get(key) != block:
                raise CacheCorruptError(f"block {block} has a key that leads elsewhere")
        keyed = sum(key is not None for key in self._key_of)
        if keyed != len(self._block_of):
            raise CacheCorruptError(f"{len(self._block_of)} keys lead to {keyed} blocks")
        idle = sum(count == 0 for count in self.owners)
        if idle != self.available:
            raise CacheCorruptError(f"{idle} blocks have no owner, {self.available} are available")

    def _evict(self) -> int:
        block = self._eviction.pop()
        key = self._key_of[block]
        if key is None or self.owners[block]:
            raise CacheCorruptError(f"block {block} was evicted with {self.owners[block]} owners")
        self._key_of[block] = None
        del self._block_of[key]
        return block
