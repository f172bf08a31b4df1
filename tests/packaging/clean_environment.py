"""Virtual environments outside the tree, for what users install."""

from __future__ import annotations

import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from tools.workspace import CONSTRAINTS


@dataclass(frozen=True)
class CleanEnvironment:
    """An environment with nothing but what was installed into it."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> CleanEnvironment:
        """Make an empty environment in *folder*."""
        venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *requirements: str | Path) -> None:
        """Install with the workspace's constraints."""
        command = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self.run(*command, "--constraint", CONSTRAINTS, *requirements, timeout=900)

    def infer(self, *arguments: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
        """Run the ``infer`` command; *options* are environment variables."""
        return self.run(self.folder / "bin" / "infer", *arguments, env=options)

    def run(
        self,
        *command: str | Path,
        timeout: float = 120,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command outside the tree; it must succeed."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.folder,
            env=self.variables(**(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def variables(self, **more: str) -> dict[str, str]:
        """Return the environment's variables, without those that reach into the tree."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {"PATH": f"{self.folder / 'bin'}{os.pathsep}{kept['PATH']}"} | more
