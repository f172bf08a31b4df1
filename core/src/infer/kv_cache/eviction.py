"""Which cached block is forgotten when the pool needs room."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict


class EvictionPolicy(ABC):
    """Keeps the blocks that nobody owns but whose content may be asked for again."""

    @abstractmethod
    def add(self, block: int) -> None:
        """*block* lost its last owner. Of one request, later positions are added first."""

    @abstractmethod
    def remove(self, block: int) -> None:
        """*block* has an owner again."""

    @abstractmethod
    def pop(self) -> int:
        """Choose the block to forget, and forget it here. Never called when empty."""

    @abstractmethod
    def __len__(self) -> int: ...


class LRU(EvictionPolicy):
    """Forgets the block that has been without owner for longest; all operations O(1)."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, block: int) -> None:
        self._blocks[block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def pop(self) -> int:
        return self._blocks.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._blocks)
