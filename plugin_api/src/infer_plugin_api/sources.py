"""Model sources: from the name a user types to files on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SourceContext:
    """cache_dir: where a source may keep files. offline: nothing may be fetched.

    announce: call it with one line before a download, with what and how many bytes.
    """

    cache_dir: Path
    offline: bool
    revision: str | None
    announce: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """path: a folder with config.json and weights, or one self-contained file (GGUF).

    name: what the model is called when served. fingerprint: changes when the files change.
    """

    name: str
    path: Path
    fingerprint: str


class ModelSource(ABC):
    """Knows some names."""

    @abstractmethod
    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        """Return the model's files, or None when this source does not know *name*.

        Raises ModelError when it knows the name and can't get the files.
        """
