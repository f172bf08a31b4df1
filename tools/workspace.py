"""The packages of this workspace, read from their pyproject files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
ENTRY_POINT_GROUP = "infer.plugins"


@dataclass(frozen=True)
class Package:
    """One distribution. folder: where its pyproject.toml lies."""

    folder: Path
    project: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the distribution."""
        return str(self.project["name"])

    @property
    def import_name(self) -> str:
        """Name of its one top-level package."""
        return next((self.folder / "src").iterdir()).name

    @property
    def entry_points(self) -> set[tuple[str, str, str]]:
        """Declared entry points and scripts as (group, name, value)."""
        groups: dict[str, dict[str, str]] = dict(self.project.get("entry-points", {}))
        if scripts := self.project.get("scripts"):
            groups["console_scripts"] = scripts
        return {
            (group, name, value) for group, names in groups.items() for name, value in names.items()
        }


def packages() -> list[Package]:
    """Return every package, those that others depend on first."""
    folders = [ROOT / "plugin_api", ROOT / "core"]
    for parent in ("plugins", "examples/plugins"):
        folders += sorted(file.parent for file in (ROOT / parent).glob("*/pyproject.toml"))
    return [
        Package(folder, tomllib.loads((folder / "pyproject.toml").read_text())["project"])
        for folder in folders
    ]


def package_in(folder: str) -> Package:
    """Return the package of *folder*, relative to the root. Raises LookupError."""
    for package in packages():
        if package.folder == ROOT / folder:
            return package
    raise LookupError(f"{folder} has no pyproject.toml")


def dependency_group(name: str) -> list[str]:
    """Return the requirements of a group in the root pyproject.toml."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [str(requirement) for requirement in groups[name]]
