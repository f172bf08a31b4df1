"""``infer env``: versions, devices and plugins, as a bug report needs them."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from importlib_metadata import distributions

from infer.cli.activation import activation_of, add_plugin_arguments
from infer.cli.console import table
from infer.cli.hardware import cpu_facts, memory_facts
from infer.plugins.discovery import survey
from infer.version import infer_version
from infer_plugin_api import API_VERSION

SUMMARY = "print what a bug report needs"

_LIBRARIES = ("numba", "numpy", "safetensors", "tokenizers", "transformers", "triton")
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "LD_PRELOAD", "OMP_NUM_THREADS")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    facts = facts_of(args)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    rows = [
        (name if number == 0 else "", line)
        for name, value in facts.items()
        for number, line in enumerate(_lines(value))
    ]
    print(table(rows))
    return 0


def facts_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return all facts in the order in which they are printed."""
    # Before torch is imported: a declaration that imports it is reported by name.
    registry, _ = survey(activation_of(args))
    return {
        "infer": f"{infer_version()} (plugin API {API_VERSION})",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "system": platform.platform(),
        **cpu_facts(),
        **memory_facts(),
        **torch_facts(),
        "libraries": _libraries(),
        "plugins": [
            f"{record.name} {record.version} {record.state} ({record.distribution})"
            + (f": {record.reason}" if record.reason else "")
            for record in registry.records
        ],
        "variables": variables(os.environ),
    }


def torch_facts() -> dict[str, Any]:
    """Return torch's version, build and devices; why it can't be imported where it can't."""
    try:
        import torch
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return {"torch": f"can't be imported: {reason}", "devices": []}
    build = torch.version.cuda and f"CUDA {torch.version.cuda}"
    build = build or (torch.version.hip and f"ROCm {torch.version.hip}") or "CPU"
    return {
        "torch": f"{torch.__version__} ({build} build, {torch.get_num_threads()} threads, "
        f"kernels for {torch.backends.cpu.get_cpu_capability()})",
        "devices": ["cpu", *_accelerators(torch)],
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what infer does; secrets are only said to be set."""
    return {
        name: "(set, not shown)" if any(word in name for word in _SECRET) else environ[name]
        for name in sorted(environ)
        if name.startswith("INFER_") or name in _VARIABLES
    }


def _accelerators(torch: Any) -> list[str]:
    found = []
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        capability = f"{device.major}.{device.minor}"
        gibibytes = device.total_memory / 2**30
        found.append(f"cuda:{index} {device.name}, {gibibytes:.1f} GiB, capability {capability}")
    return found


def _libraries() -> dict[str, str]:
    """Return versions of our own distributions and of libraries that matter, by metadata."""
    found: dict[str, str] = {}
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"] or ""
            if name in _LIBRARIES or name.startswith("infer-"):
                found.setdefault(name, distribution.version)
        except Exception as error:
            log.debug("the metadata of a distribution can't be read: %s", error)
    return dict(sorted(found.items()))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} {text}" for name, text in value.items()] or ["none"]
    if isinstance(value, list):
        return value or ["none"]
    return [str(value)]
