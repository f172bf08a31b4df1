"""Version of infer-core."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def infer_version() -> str:
    """Return the installed version of infer-core, or "unknown" when it runs uninstalled."""
    try:
        return version("infer-core")
    except PackageNotFoundError:
        return "unknown"
