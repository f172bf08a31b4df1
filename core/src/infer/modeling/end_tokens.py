"""Which token ids end an answer, by a model's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_plugin_api.errors import ModelError


def end_token_ids(generation: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the generation config's ids, else the config's; either may be one id or a list.

    Raises ModelError for values that are no ids.
    """
    for file, source in (("generation_config.json", generation), ("config.json", config)):
        value = source.get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(
            isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in ids
        ):
            raise ModelError(
                f"{file}: eos_token_id is {value!r}, expected a token id or a list of them"
            )
        return tuple(dict.fromkeys(ids))
    return ()


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
