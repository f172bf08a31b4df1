"""The plugin environments that CI runs: those the last commit changed, and one more in turn."""

from __future__ import annotations

import subprocess

from tools.workspace import ROOT


def main() -> None:
    """Print the tox envs, separated by commas."""
    names = sorted(file.parent.name for file in (ROOT / "plugins").glob("*/pyproject.toml"))
    chosen = {name for name in names if f"plugins/{name}/" in _git("diff", "--name-only", "HEAD~1")}
    count = _git("rev-list", "--count", "HEAD").strip()
    chosen.add(names[int(count or 0) % len(names)])
    print(",".join(f"plugin-{name}" for name in sorted(chosen)))


def _git(*arguments: str) -> str:
    """Return git's answer, empty where there is no such commit (a shallow clone) or no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
