"""Models on this machine: a folder, or one GGUF file."""

from __future__ import annotations

from pathlib import Path

from infer.modeling.fingerprint import fingerprint
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext

_SUFFIX = ".gguf"


class LocalSource(ModelSource):
    """Knows every path that exists, and names that can only be paths."""

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        path = _found(name)
        if path is None:
            if name.startswith(("/", ".", "~")) or name.endswith(_SUFFIX):
                raise ModelError(f"no model at {name}: there is no such folder or file")
            return None
        if path.is_dir():
            path = _only_file(path) or path
        elif path.suffix != _SUFFIX:
            raise ModelError(f"{path} is a file, but only .gguf files are models by themselves")
        return ResolvedModel(
            name=path.stem if path.suffix == _SUFFIX else path.name,
            path=path,
            fingerprint=fingerprint(path),
        )


def _found(name: str) -> Path | None:
    """Return the path that *name* leads to, None when it leads nowhere."""
    try:
        return Path(name).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None


def _only_file(folder: Path) -> Path | None:
    """Return the GGUF file that a folder is all about; None for folders of another kind."""
    if (folder / "config.json").is_file():
        return None
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ModelError(f"{folder} holds {len(files)} GGUF files ({names}); name one of them")
    return files[0] if files else None
