"""The blocks that hold nothing, handed out so that a request's blocks follow each other."""

from __future__ import annotations

_TAKEN, _FREE, _KEPT = 0, 1, 2
_FREE_BYTE, _KEPT_BYTE = b"\x01", b"\x02"


class FreeMap:
    """One byte a block, so that runs are found by the C library's search.

    Some attention backends read a table in place when its blocks are neighbours. So a new table
    starts where it can grow to its full length, lowest ids first (pages of the pool that nobody
    ever reaches cost no memory), and the rest of the run is *kept* for it: taken by others only
    when nothing else is free.

        taken taken kept kept kept taken kept free free ...
        └ table A ┘ └ A grows ─┘  └ B ┘
    """

    def __init__(self, num_blocks: int) -> None:
        self._state = bytearray(_FREE_BYTE) * num_blocks
        self._count = num_blocks

    def __len__(self) -> int:
        return self._count

    def __contains__(self, block: int) -> bool:
        return self._state[block] != _TAKEN

    def take(self, after: int | None, room: int) -> int:
        """Take the block behind *after*, or start a run that has *room* blocks if there is one.

        Must not be called when empty.
        """
        block = -1
        if after is not None and after + 1 < len(self._state) and self._state[after + 1] != _TAKEN:
            block = after + 1
        if block < 0:
            block = self._start(room)
        self._state[block] = _TAKEN
        self._count -= 1
        return block

    def give(self, block: int) -> None:
        """Return a taken block."""
        if self._state[block] != _TAKEN:
            raise RuntimeError(f"block {block} was returned twice")
        self._state[block] = _FREE
        self._count += 1

    def end_run(self, last: int) -> None:
        """Let go of what is kept behind *last*, the end of a table that will not grow further."""
        end = last + 1
        while end < len(self._state) and self._state[end] == _KEPT:
            end += 1
        self._state[last + 1 : end] = _FREE_BYTE * (end - last - 1)

    def _start(self, room: int) -> int:
        while room > 1:
            block = self._state.find(_FREE_BYTE * room)
            if block >= 0:
                self._state[block + 1 : block + room] = _KEPT_BYTE * (room - 1)
                return block
            room //= 2
        block = self._state.find(_FREE_BYTE)
        if block < 0:
            self._state = self._state.replace(_KEPT_BYTE, _FREE_BYTE)
            block = self._state.find(_FREE_BYTE)
        return block
