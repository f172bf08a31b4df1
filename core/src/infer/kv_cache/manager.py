"""The KV cache manager: block tables of running requests, and the prefix cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from infer.kv_cache.capacity import blocks_needed, window_of
from infer.kv_cache.eviction import LRU, EvictionPolicy
from infer.kv_cache.hashing import HashChain, group_key, root_digest
from infer.kv_cache.pool import BlockPool
from infer.kv_cache.tables import NO_BLOCK, BlockTables, Match
from infer_plugin_api.kv import KVGroup


class KVCacheManager:
    """One pool of blocks for all groups and requests.

    A block belongs to one group at a time. Each group has its own table per request; index i of
    it covers positions i * block_size ... (i + 1) * block_size - 1. What lies before a sliding
    group's window is given back; the table keeps its length, and what the worker still has at
    such an index is stale and must not be read.

    Blocks that are given back while a step in flight names them return to the pool when that step
    retires. Steps retire in order; ``retire`` says so.

    fingerprint: everything besides tokens, salt and groups that keys and values depend on.
    """

    def __init__(
        self,
        groups: tuple[KVGroup, ...],
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool,
        fingerprint: bytes,
        eviction: EvictionPolicy | None = None,
    ) -> None:
        if num_blocks < len(groups) or block_size < 1 or not groups:
            raise ValueError(
                f"{num_blocks} blocks of {block_size} tokens cannot serve {len(groups)} KV groups"
            )
        self.groups = groups
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.fingerprint = fingerprint
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._pool = BlockPool(num_blocks, LRU() if eviction is None else eviction)
        self._windows = [window_of(group) for group in groups]
        self._sliding = [
            (index, window) for index, window in enumerate(self._windows) if window is not None
        ]
        self._open: set[BlockTables] = set()
        self._leaving: dict[int, list[int]] = {}
        self._retired = 0

    @property
    def available(self) -> int:
        """Blocks that can be taken now; cached content is evicted for them."""
        return self._pool.available

    @property
    def num_used(self) -> int:
        """Blocks that somebody owns, those that wait for a step to retire included."""
        return self.num_blocks - self._pool.available

    @property
    def num_cached(self) -> int:
        """Blocks whose content the prefix cache can find."""
        return self._pool.num_cached

    @property
    def has_sliding(self) -> bool:
        """Whether any group gives blocks back while a request runs."""
        return bool(self._sliding)

    def blocks_needed(self, num_tokens: int, chunk: int = 1) -> int:
        """Return the most blocks that a request of *num_tokens* owns at once."""
        return blocks_needed(self.groups, self.block_size, num_tokens, chunk)

    # The prefix cache

    def chain(self, salt: str) -> HashChain | None:
        """Return a new request's hash chain; None when prefix caching is off."""
        if not self.enable_prefix_caching:
            return None
        root = root_digest(self.fingerprint, salt, self.groups, self.block_size)
        return HashChain(root, self.block_size)

    def match(self, chain: HashChain | None, token_ids: Sequence[int]) -> Match:
        """Find the longest cached prefix that is valid in all groups; takes nothing.

        Full groups need every block of it, sliding ones those that the next token sees. At least
        one token is left to compute, so it ends before the last one, at a block's end.
        """
        if chain is None:
            return Match(0, [[] for _ in self.groups])
        limit = (len(token_ids) - 1) // self.block_size
        chain.extend(token_ids, limit)
        found: list[list[int]] = [[] for _ in self.groups]
        runs = [0] * len(self.groups)
        best = 0
        for index, digest in enumerate(chain.digests[:limit]):
            valid = True
            for group, window in enumerate(self._windows):
                block = self._pool.find(group_key(digest, group))
                if block is None and window is None:
                    return self._trimmed(found, best)
                runs[group] = 0 if block is None else runs[group] + 1
                found[group].append(NO_BLOCK if block is None else block)
                if window is not None:
                    needed = index + 1 - self._first_seen(window, (index + 1) * self.block_size)
                    valid = valid and runs[group] >= needed
            if valid:
                best = index + 1
        return self._trimmed(found, best)

    def idle(self, match: Match) -> int:
        """Return how many blocks of *match* nobody owns: what opening it takes from the pool."""
        return sum(self._pool.owners[block] == 0 for block in match.held())

    def count_query(self, num_tokens: int, num_hits: int) -> None:
        """Count a request's prompt in the prefix cache figures, which are in tokens."""
        if self.enable_prefix_caching:
            self.prefix_queries += num_tokens
            self.prefix_hits += num_hits

    def commit(
        self, tables: BlockTables, chain: HashChain | None, ids: Sequence[int], num_tokens: int
    ) -> None:
        """Make full blocks findable: *num_tokens* are computed by steps issued so far.

        ids must be those that were computed, known to the host: never placeholders.
        """
        full = num_tokens // self.block_size
        if chain is None or full <= tables.named:
            return
        chain.extend(ids, full)
        for index in range(tables.named, full):
            for group, table in enumerate(tables.blocks):
                if table[index] != NO_BLOCK:
                    self._pool.name(table[index], group_key(chain.digests[index], group))
        tables.named = full

    # Tables

    def open(self, match: Match, max_tokens: int) -> BlockTables:
        """Start a request's tables with the blocks of *match*, which must be fresh.

        max_tokens: the length it may reach, a hint for where its blocks are put.
        """
        for block in match.held():
            self._pool.share(block)
        count = match.num_tokens // self.block_size
        tables = BlockTables(
            blocks=match.blocks,
            first=[sum(block == NO_BLOCK for block in table) for table in match.blocks],
            capacity=match.num_tokens,
            named=count,
            room=-(-max_tokens // self.block_size),
        )
        self._open.add(tables)
        return tables

    def reach(self, tables: BlockTables) -> int:
        """Return the length in tokens that *tables* could have with all available blocks."""
        return tables.capacity + self.available // len(self.groups) * self.block_size

    def extend(self, tables: BlockTables, num_tokens: int) -> int:
        """Take blocks so that the tables hold *num_tokens*; return the first new index.

        num_tokens must be within ``reach``.
        """
        start = tables.capacity // self.block_size
        count = -(-num_tokens // self.block_size) - start
        if count > 0:
            for table in tables.blocks:
                last = table[-1] if table and table[-1] != NO_BLOCK else None
                table += self._pool.take(count, last, tables.room - start)
            tables.capacity += count * self.block_size
        return start

    def slide(self, tables: BlockTables, position: int, last_step: int) -> None:
        """Give back what no query at *position* or later sees.

        last_step: the last step that names these tables.
        """
        for group, window in self._sliding:
            seen = self._first_seen(window, position)
            first = tables.first[group]
            if seen > first:
                table = tables.blocks[group]
                self._give(reversed(table[first:seen]), last_step)
                table[first:seen] = [NO_BLOCK] * (seen - first)
                tables.first[group] = seen

    def close(self, tables: BlockTables, last_step: int) -> None:
        """Give all blocks back; they stay findable until they are needed for something else."""
        self._open.remove(tables)
        for table, first in zip(tables.blocks, tables.first, strict=True):
            if len(table) > first:
                self._pool.end_run(table[-1])
            self._give(reversed(table[first:]), last_step)

    def retire(self, step_id: int) -> None:
        """Step *step_id* and all before it are done: what they held back returns to the pool."""
        self._retired = step_id
        for block in self._leaving.pop(step_id, ()):
            self._pool.give(block)

    # Memory pressure

    @property
    def num_leaving(self) -> int:
        """Blocks that will be available when the steps in flight retire."""
        owners = Counter(block for blocks in self._leaving.values() for block in blocks)
        return self._only(owners)

    def reclaimable(self, requests: Iterable[BlockTables]) -> int:
        """Return how many blocks would be given back if all of *requests* were closed."""
        return self._only(_owners(requests))

    def check(self) -> None:
        """Raise CacheCorruptError if a block is lost, owned twice or miscounted. O(blocks)."""
        owners = _owners(self._open)
        for blocks in self._leaving.values():
            owners.update(blocks)
        self._pool.check(owners)

    def _only(self, owners: Counter[int]) -> int:
        return sum(self._pool.owners[block] == count for block, count in owners.items())

    def _give(self, blocks: Iterable[int], last_step: int) -> None:
        if last_step > self._retired:
            self._leaving.setdefault(last_step, []).extend(blocks)
        else:
            for block in blocks:
                self._pool.give(block)

    def _first_seen(self, window: int, position: int) -> int:
        return max(0, position - window + 1) // self.block_size

    def _trimmed(self, found: list[list[int]], count: int) -> Match:
        """Cut the tables to *count* blocks; sliding groups keep what the next token sees."""
        num_tokens = count * self.block_size
        tables = []
        for table, window in zip(found, self._windows, strict=True):
            seen = 0 if window is None else min(count, self._first_seen(window, num_tokens))
            tables.append([NO_BLOCK] * seen + table[seen:count])
        return Match(num_tokens, tables)


def _owners(requests: Iterable[BlockTables]) -> Counter[int]:
    return Counter(
        block
        for tables in requests
        for table, first in zip(tables.blocks, tables.first, strict=True)
        for block in table[first:]
    )
