"""A folder like site-packages, with plugins in it that look installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

PREAMBLE = """
from infer_plugin_api import *

infer_plugin = PluginInfo(api_version="1.0")
"""


def sampler(name: str, hook: str = "infer_samplers") -> str:
    """Return the source of a hook that declares one sampler."""
    return f"""
@hookimpl
def {hook}():
    return [SamplerDescriptor(name={name!r}, implementation="nowhere:Nothing")]
"""


class Site:
    """Write distributions into a folder that is on ``sys.path`` of this process or a child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def install(
        self,
        name: str,
        source: str = PREAMBLE,
        *,
        distribution: str = "",
        version: str = "1.0",
        entry_point: str = "",
    ) -> str:
        """Lay out what installing ``infer-NAME`` would leave; return its module's name.

        entry_point: replaces ``NAME_module``, which holds *source*.
        """
        module = f"{name.replace('-', '_')}_module"
        distribution = distribution or f"infer-{name}"
        self.write(f"{module}.py", source)
        info = f"{distribution.replace('-', '_')}-{version}.dist-info"
        self.write(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        )
        self.write(
            f"{info}/entry_points.txt", f"[infer.plugins]\n{name} = {entry_point or module}\n"
        )
        return module

    def write(self, path: str, content: str | bytes) -> None:
        """Write one file, with the folders above it."""
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        importlib.invalidate_caches()

    def forget(self) -> None:
        """Drop the modules that this process has imported from the folder."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]
