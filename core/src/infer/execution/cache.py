"""The KV pool's memory, seen as one tensor per layer."""

from __future__ import annotations

import torch

from infer_plugin_api.kv import KVGroup, KVSpec, block_bytes


def allocate_cache(
    groups: tuple[KVGroup, ...], num_blocks: int, page_size: int, device: torch.device
) -> list[torch.Tensor]:
    """Return each layer's cache [2, num_blocks, page_size, num_kv_heads, head_size], layout "nhd".

    The pool has as many sections as the deepest group has layers; layer i of every group lives
    in section i. That is safe because a block id belongs to one group at a time:

        section 0: keys of blocks 0 ... n-1 | values of blocks 0 ... n-1
        section 1: ...

    Memory is not touched here, so pages that no request reaches cost nothing on the CPU.
    """
    sections = max(len(group.layers) for group in groups)
    section_bytes = num_blocks * block_bytes(groups, page_size) // sections
    pool = torch.empty(sections * section_bytes, dtype=torch.uint8, device=device)
    layers: dict[int, torch.Tensor] = {}
    for group in groups:
        for section, layer in enumerate(group.layers):
            memory = pool[section * section_bytes : (section + 1) * section_bytes]
            layers[layer] = _view(memory, group.spec, num_blocks, page_size)
    return [layers[index] for index in sorted(layers)]


def _view(memory: torch.Tensor, spec: KVSpec, num_blocks: int, page_size: int) -> torch.Tensor:
    flat = memory.view(getattr(torch, spec.dtype)).view(2, num_blocks, -1)
    page = page_size * spec.num_kv_heads * spec.head_size
    shape = (2, num_blocks, page_size, spec.num_kv_heads, spec.head_size)
    return flat[:, :, :page].view(shape)
