"""Models of the Hugging Face hub, through its own cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext

from infer.modeling.fingerprint import fingerprint

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

_PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")
_TIMEOUT_SECONDS = 10.0


class HubSource(ModelSource):
    """Knows names of the form ``owner/model``. Never fetches when offline."""

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        if name.count("/") != 1 or name.startswith("/"):
            return None
        folder = _cached(name, context.revision)
        if folder is None:
            if context.offline:
                raise ModelError(
                    f"{name} is not in the Hugging Face cache and INFER_OFFLINE or HF_HUB_OFFLINE "
                    "forbids fetching it; download it first or give a local folder"
                )
            folder = _fetch(name, context)
        return ResolvedModel(name=name, path=folder, fingerprint=fingerprint(folder))


def _cached(name: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(
            name, revision=revision, allow_patterns=list(_PATTERNS), local_files_only=True
        )
    except LocalEntryNotFoundError:
        return None
    folder = Path(found)
    return folder if any(folder.glob("*.safetensors")) else None


def _fetch(name: str, context: SourceContext) -> Path:
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", str(int(_TIMEOUT_SECONDS)))
    import httpx
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        info = HfApi().model_info(
            name, revision=context.revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
        )
        size = sum(_size(file) for file in info.siblings or ())
        context.announce(f"downloading {name} ({size / 1e6:.0f} MB) from the Hugging Face hub")
        return Path(
            snapshot_download(name, revision=info.sha, allow_patterns=list(_PATTERNS))
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{name} can't be fetched from the Hugging Face hub: {reason}"
        ) from error


def _size(file: RepoFile) -> int:
    name = getattr(file, "rfilename", "")
    return int(file.size or 0) if name.endswith((".json", ".safetensors")) else 0
