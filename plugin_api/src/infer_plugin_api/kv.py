"""What a layer keeps between steps, and how the pool is divided."""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True, kw_only=True)
class KVSpec:
    """One layer's cache; layers with equal specs form a group.

    kind: ``"full"`` or ``"sliding"``.
    window: tokens a sliding layer sees, itself included; None for full attention.
    """

    num_kv_heads: int
    head_size: int
    dtype: str
    kind: str = "full"
    window: int | None = None

    def page_bytes(self, page_size: int) -> int:
        """Bytes of one page of *page_size* tokens: keys and values of one layer."""
        return 2 * page_size * self.num_kv_heads * self.head_size * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class KVGroup:
    """Layers that share a block table. *layers* are indices into the model's layers."""

    spec: KVSpec
    layers: tuple[int, ...]


def group_layers(specs: tuple[KVSpec, ...]) -> tuple[KVGroup, ...]:
    """Collect equal specs into groups, in order of first appearance."""
    members: dict[KVSpec, list[int]] = {}
    for layer, spec in enumerate(specs):
        members.setdefault(spec, []).append(layer)
    return tuple(KVGroup(spec=spec, layers=tuple(layers)) for spec, layers in members.items())


def block_bytes(groups: tuple[KVGroup, ...], page_size: int) -> int:
    """Bytes of one block of the shared pool.

    A block belongs to one group at a time. It takes the largest group's page in each of as many
    sections as the deepest group has layers.
    """
    sections = max(len(group.layers) for group in groups)
    return sections * max(group.spec.page_bytes(page_size) for group in groups)
