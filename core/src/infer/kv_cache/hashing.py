"""Names for the content of full blocks, equal in every process that computes the same."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from infer_plugin_api.kv import KVGroup


def root_digest(
    fingerprint: bytes, salt: str, groups: tuple[KVGroup, ...], block_size: int
) -> bytes:
    """Hash what all blocks of a request depend on besides token ids.

    fingerprint: the model's weights, dtype and rope parameters. Fields are length-prefixed, so no
    two inputs run into each other.
    """
    specs = [
        (spec.kind, spec.window, spec.num_kv_heads, spec.head_size, spec.dtype, group.layers)
        for group in groups
        for spec in (group.spec,)
    ]
    digest = hashlib.sha256()
    for field in (fingerprint, salt.encode(), repr(specs).encode(), str(block_size).encode()):
        digest.update(struct.pack("<Q", len(field)))
        digest.update(field)
    return digest.digest()


def group_key(digest: bytes, group: int) -> bytes:
    """Return the key of one group's block with the content *digest*."""
    return digest + group.to_bytes(2, "little")


class HashChain:
    """SHA-256 over (previous digest, token ids as little-endian int32), block by block.

    Lives as long as its request and only grows: a token whose id is known never changes.
    """

    def __init__(self, root: bytes, block_size: int) -> None:
        self.digests: list[bytes] = []
        self._last = root
        self._block_size = block_size

    def extend(self, token_ids: Sequence[int], num_blocks: int) -> None:
        """Compute the digests of blocks up to *num_blocks*, all of whose ids must be given."""
        done, size = len(self.digests), self._block_size
        if num_blocks <= done:
            return
        ids = token_ids[done * size : num_blocks * size]
        if len(ids) != (num_blocks - done) * size:
            raise ValueError(f"{num_blocks} blocks of {size} need more than {len(token_ids)} ids")
        packed = memoryview(struct.pack(f"<{len(ids)}i", *ids))
        for start in range(0, len(packed), 4 * size):
            digest = hashlib.sha256(self._last)
            digest.update(packed[start : start + 4 * size])
            self._last = digest.digest()
            self.digests.append(self._last)
