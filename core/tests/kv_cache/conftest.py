"""KV cache managers for the tests in this folder."""

import pytest

from infer.kv_cache.manager import KVCacheManager
from infer_plugin_api.kv import KVGroup, KVSpec


def kv_groups(*windows: int | None) -> tuple[KVGroup, ...]:
    return tuple(
        KVGroup(
            spec=KVSpec(
                num_kv_heads=index + 1,
                head_size=8,
                dtype="float32",
                kind="full" if window is None else "sliding",
                window=window,
            ),
            layers=(index,),
        )
        for index, window in enumerate(windows)
    )


@pytest.fixture
def groups_of():
    """Return a function from windows (None is full attention) to KV groups."""
    return kv_groups


@pytest.fixture
def make_cache():
    """Return a function that makes a manager; a group per window."""

    def make(*windows, num_blocks=16, block_size=4, caching=True, fingerprint=b"model"):
        groups = kv_groups(*(windows or (None,)))
        return KVCacheManager(groups, num_blocks, block_size, caching, fingerprint)

    return make


@pytest.fixture
def compute():
    """Return a function that runs a request's prompt through a cache and returns its tables."""

    def run(cache, token_ids, *, salt="", step=0, max_tokens=0):
        chain = cache.chain(salt)
        match = cache.match(chain, token_ids)
        tables = cache.open(match, max_tokens or len(token_ids))
        cache.extend(tables, len(token_ids))
        cache.commit(tables, chain, token_ids, len(token_ids))
        cache.check()
        return tables

    return run
