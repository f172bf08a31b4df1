"""Models of the Hugging Face hub, through its own cache."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from infer.modeling.fingerprint import fingerprint
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_WEIGHTS = ".safetensors"
_WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]
_NOT_WANTED = ["*/*", "consolidated*"]
_TIMEOUT_SECONDS = 10.0
_LONGEST_REASON = 300


class HubSource(ModelSource):
    """Knows names of the form ``owner/model``.

    A complete copy in the hub's cache is used as it is, without asking the hub for a newer one;
    offline nothing else is.
    """

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        if not _NAME.fullmatch(name):
            return None
        folder = _cached(name, context.revision)
        if folder is None:
            if context.offline:
                raise ModelError(
                    f"{name} is no local folder and is not complete in the Hugging Face cache, and "
                    "INFER_OFFLINE or HF_HUB_OFFLINE forbids fetching it; download it first"
                )
            folder = _fetched(name, context)
        return ResolvedModel(name=name, path=folder, fingerprint=fingerprint(folder))


def _cached(name: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if _is_complete(found) else None


def _is_complete(folder: Path) -> bool:
    """Whether a snapshot has all it needs; an interrupted download leaves it without some files."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob(f"*{_WEIGHTS}"))
    try:
        shards = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, AttributeError):
        return False
    return all((folder / str(shard)).is_file() for shard in shards)


def _fetched(name: str, context: SourceContext) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi().model_info(
            name, revision=context.revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
        )
        megabytes = _bytes_to_fetch(name, info) / 1e6
        context.announce(f"downloading {name} ({megabytes:.0f} MB) from the Hugging Face hub")
        folder = snapshot_download(
            name,
            revision=info.sha,
            allow_patterns=_WANTED,
            ignore_patterns=_NOT_WANTED,
            etag_timeout=_TIMEOUT_SECONDS,
        )
    except ModelError:
        raise
    except Exception as error:
        # Which HTTP library raises what differs between versions of huggingface_hub.
        raise ModelError(_reason(name, context.revision, error)) from error
    return Path(folder)


def _bytes_to_fetch(name: str, info: ModelInfo) -> int:
    """Return the size of the files that will be fetched. Raises ModelError without weights."""
    files = {item.rfilename: item.size or 0 for item in info.siblings or ()}
    wanted = {
        file: size
        for file, size in files.items()
        if "/" not in file
        and not file.startswith("consolidated")
        and file.endswith((".json", ".jinja", _WEIGHTS, "tokenizer.model"))
    }
    if not any(file.endswith(_WEIGHTS) for file in wanted):
        has_gguf = any(file.endswith(".gguf") for file in files)
        raise ModelError(
            f"{name} has no {_WEIGHTS} files on the Hugging Face hub"
            + ("; download one of its .gguf files and give its path" if has_gguf else "")
        )
    return sum(wanted.values())


def _reason(name: str, revision: str | None, error: Exception) -> str:
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return (
            f"{name} is gated: accept its terms at https://huggingface.co/{name} and set HF_TOKEN"
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"{name} is no local folder and no model of the Hugging Face hub that can be seen from "
            "here; a private one needs HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{name} has no revision {revision!r} on the Hugging Face hub"
    told = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
    return (
        f"{name} is no local folder and can't be fetched from the Hugging Face hub: {told}; "
        "INFER_OFFLINE=1 uses only what is on this machine"
    )
