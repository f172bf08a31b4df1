"""A request as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from infer.kv_cache.hashing import HashChain
from infer.kv_cache.tables import BlockTables
from infer_plugin_api.sampling import SamplingParams

NO_ROW = -1


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """What the caller gives, and below it what the scheduler writes (nobody else may).

    stop_ids: ids that end the request, EOS included unless it is ignored. eos_ids: those of them
    that ``stop_reason`` does not report.

    arrival: sequence number. rank: sort key, smaller is served first; never changes.
    max_length: prompt plus answer may reach this. token_ids: the known ids, prompt first.
    num_pending: sampled by steps in flight, so that their ids are not known yet.
    num_computed: positions whose keys and values are computed by the steps issued so far.
    drafting: a step in flight verifies drafts; how far it got is not known.
    row, tables: NO_ROW and None while it waits. last_step: the last step that names it.
    num_cached_tokens: found in the prefix cache when it was first admitted; None before.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    cache_salt: str = ""

    arrival: int = field(init=False, default=0)
    rank: tuple[Any, int] = field(init=False, default=(0, 0))
    max_length: int = field(init=False, default=0)
    token_ids: list[int] = field(init=False)
    num_pending: int = field(init=False, default=0)
    num_computed: int = field(init=False, default=0)
    drafting: bool = field(init=False, default=False)
    finished: bool = field(init=False, default=False)
    row: int = field(init=False, default=NO_ROW)
    tables: BlockTables | None = field(init=False, default=None)
    chain: HashChain | None = field(init=False, default=None)
    last_step: int = field(init=False, default=0)
    num_cached_tokens: int | None = field(init=False, default=None)
    num_preemptions: int = field(init=False, default=0)
    num_prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_token_ids)
        self.num_prompt_tokens = len(self.prompt_token_ids)

    @property
    def priority(self) -> int:
        return self.params.priority

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_computed_tokens(self) -> int:
        return self.num_computed

    @property
    def length(self) -> int:
        """Tokens that exist, on the host or on the device only."""
        return len(self.token_ids) + self.num_pending

    @property
    def decoding(self) -> bool:
        """Only its newest token is left to compute."""
        return self.num_computed >= self.length - 1
