"""Names of block contents."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infer.kv_cache.hashing import HashChain, group_key, root_digest

PROGRAM = """
from infer.kv_cache.hashing import HashChain, root_digest
from infer_plugin_api.kv import KVGroup, KVSpec
spec = KVSpec(num_kv_heads=2, head_size=64, dtype="bfloat16", kind="sliding", window=128)
root = root_digest(b"weights", "salt", (KVGroup(spec=spec, layers=(0, 2)),), 4)
chain = HashChain(root, 4)
chain.extend([1, 2, 3, 4, 2**31 - 1, 0, 7, 8], 2)
print(chain.digests[-1].hex())
"""


def digests(groups, ids, *, fingerprint=b"model", salt="", block_size=4):
    chain = HashChain(root_digest(fingerprint, salt, groups, block_size), block_size)
    chain.extend(ids, len(ids) // block_size)
    return chain.digests


def test_every_process_computes_the_same_digest():
    found = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        found.add(subprocess.check_output(command, env=environment, text=True, timeout=60).strip())
    assert found == {"60e95af3bd7a5c29b01e1d11bb7756665721eaac4b621c2d16e9325eee60caa4"}


def test_a_digest_depends_on_all_tokens_before(groups_of):
    one = digests(groups_of(None), [1, 2, 3, 4, 5, 6, 7, 8])
    two = digests(groups_of(None), [1, 2, 3, 9, 5, 6, 7, 8])
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_it_depends_on_everything_that_keys_and_values_depend_on(groups_of):
    ids = [1, 2, 3, 4]
    base = groups_of(None)
    variants = [
        digests(base, ids),
        digests(base, ids, fingerprint=b"other"),
        digests(base, ids, salt="s"),
        digests(groups_of(8), ids),
        digests(groups_of(None, 8), ids),
        digests(base, ids * 2, block_size=8),
    ]
    assert len({variant[0] for variant in variants}) == len(variants)


def test_fields_do_not_run_into_each_other(groups_of):
    base = groups_of(None)
    assert digests(base, [1] * 4, fingerprint=b"ab", salt="c") != digests(
        base, [1] * 4, fingerprint=b"a", salt="bc"
    )


def test_it_grows_in_pieces_to_the_same_digests(groups_of):
    ids = list(range(20))
    chain = HashChain(root_digest(b"model", "", groups_of(None), 4), 4)
    for count in (1, 1, 3, 2, 5):
        chain.extend(ids, count)
    assert chain.digests == digests(groups_of(None), ids)


def test_a_block_whose_ids_are_not_all_known_has_no_digest(groups_of):
    chain = HashChain(root_digest(b"model", "", groups_of(None), 4), 4)
    with pytest.raises(ValueError, match="2 blocks of 4 need more than 7 ids"):
        chain.extend(list(range(7)), 2)


def test_groups_have_keys_of_their_own():
    assert group_key(b"x", 0) != group_key(b"x", 1)
