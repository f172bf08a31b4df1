"""Build wheels of workspace packages into ``dist``: ``python -m tools.wheels [FOLDER…]``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.workspace import ROOT, Package, package_in, packages

DIST = ROOT / "dist"


def main() -> None:
    """Build the packages named by folder, or all."""
    chosen = [package_in(folder) for folder in sys.argv[1:]] or packages()
    for package in chosen:
        print(build(package).relative_to(ROOT), flush=True)


def build(package: Package) -> Path:
    """Build one package's wheel by way of its sdist; return the wheel in ``dist``."""
    for old in DIST.glob(f"{package.name.replace('-', '_')}-*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST)]
    done = subprocess.run(
        [*command, str(package.folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{package.name} can't be built:\n{done.stdout}{done.stderr}")
    return wheel_of(package)


def wheel_of(package: Package) -> Path:
    """Return the built wheel of *package*. Raises LookupError when there is not exactly one."""
    found = list(DIST.glob(f"{package.name.replace('-', '_')}-*.whl"))
    if len(found) != 1:
        raise LookupError(f"{DIST} has {len(found)} wheels of {package.name}; run: tox -e wheels")
    return found[0]


def clean() -> None:
    """Remove ``dist``."""
    shutil.rmtree(DIST, ignore_errors=True)


if __name__ == "__main__":
    main()
