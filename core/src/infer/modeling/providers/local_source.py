"""Models on this machine: a folder, or one GGUF file."""

from __future__ import annotations

from pathlib import Path

from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext

from infer.modeling.fingerprint import fingerprint


class LocalSource(ModelSource):
    """Knows every path that exists, and names that can only be paths."""

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        path = Path(name).expanduser()
        if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
            path = path.resolve()
            return ResolvedModel(
                name=path.stem if path.suffix == ".gguf" else path.name,
                path=path,
                fingerprint=fingerprint(path),
            )
        if path.is_file():
            raise ModelError(f"{path} is a file, but only .gguf files are models by themselves")
        if name.startswith(("/", ".", "~")) or name.endswith(".gguf"):
            raise ModelError(f"no model at {path}: there is no such folder or file")
        return None
