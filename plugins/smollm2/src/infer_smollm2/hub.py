"""The original checkpoint on the Hugging Face hub, where huggingface_hub is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"

_MEGABYTES = 270
_NEEDED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
_WANTED = [*_NEEDED, "generation_config.json", "special_tokens_map.json", "*.jinja"]
_CONNECT_SECONDS = 3.0


def cached() -> Path | None:
    """Return the snapshot in the hub's own cache, if it is complete."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(REPOSITORY, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return folder if all((folder / name).is_file() for name in _NEEDED) else None


def fetched(announce: Callable[[str], None]) -> Path | None:
    """Download the checkpoint; None, with the reason announced, when the hub can't be used.

    One short request decides whether the hub can be reached at all.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import HfApi, snapshot_download

    try:
        revision = HfApi().model_info(REPOSITORY, timeout=_CONNECT_SECONDS).sha
        announce(f"downloading {REPOSITORY} ({_MEGABYTES} MB) from the Hugging Face hub, once")
        return Path(
            snapshot_download(
                REPOSITORY,
                revision=revision,
                allow_patterns=_WANTED,
                ignore_patterns=["*/*"],
                etag_timeout=_CONNECT_SECONDS,
            )
        )
    except Exception as error:
        # Which HTTP library raises what differs between versions of huggingface_hub.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        announce(f"the Hugging Face hub can't be used ({reason}); trying pip")
        return None
