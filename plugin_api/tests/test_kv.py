"""Layers with equal caches share a group, and groups share blocks of one size."""

from __future__ import annotations

from dataclasses import replace

from infer_plugin_api.kv import KVGroup, KVSpec, block_bytes, group_layers

FULL = KVSpec(num_kv_heads=2, head_size=64, dtype="bfloat16")
SLIDING = replace(FULL, kind="sliding", window=16)


def test_equal_layers_form_one_group() -> None:
    assert group_layers((FULL, replace(FULL))) == (KVGroup(spec=FULL, layers=(0, 1)),)


def test_groups_come_in_the_order_of_their_first_layer() -> None:
    assert group_layers((SLIDING, FULL, SLIDING, SLIDING)) == (
        KVGroup(spec=SLIDING, layers=(0, 2, 3)),
        KVGroup(spec=FULL, layers=(1,)),
    )


def test_windows_of_other_lengths_are_other_groups() -> None:
    assert len(group_layers((SLIDING, replace(SLIDING, window=17)))) == 2


def test_a_page_holds_keys_and_values_of_one_layer() -> None:
    assert FULL.page_bytes(16) == 2 * 16 * 2 * 64 * 2
    assert replace(FULL, dtype="float32").page_bytes(16) == 2 * FULL.page_bytes(16)


def test_a_block_has_room_for_the_deepest_group_and_the_largest_page() -> None:
    wide = replace(SLIDING, num_kv_heads=8)
    groups = group_layers((FULL, FULL, FULL, wide))
    assert block_bytes(groups, 16) == 3 * wide.page_bytes(16)
