"""``infer env``: what a bug report needs, and nothing that must not be in one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from infer.cli import hardware
from infer.cli.env import variables
from infer.cli.main import main

Output = pytest.CaptureFixture[str]


def facts(capsys: Output) -> dict[str, object]:
    assert main(["env", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_names_versions_machine_and_plugins(capsys: Output) -> None:
    import torch

    found = facts(capsys)
    assert found["python"] == f"CPython {sys.version.split()[0]}"
    assert str(found["torch"]).startswith(f"{torch.__version__} (")
    assert "cpu" in found["devices"]
    assert found["libraries"]["infer-core"] == "0.1.0"
    assert "builtin 0.1.0 active (infer-core)" in found["plugins"]
    assert str(found["cores"]).endswith(f"usable of {os.cpu_count()}")


def test_people_get_the_same_as_aligned_text(capsys: Output) -> None:
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["infer", "python"]
    assert any(line.startswith("torch ") for line in lines)


def test_a_missing_torch_is_said_and_no_failure(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = facts(capsys)
    assert str(found["torch"]).startswith("can't be imported: ModuleNotFoundError")
    assert found["devices"] == []


def test_keys_are_never_shown() -> None:
    shown = variables(
        {
            "INFER_API_KEY": "hunter2",
            "INFER_HUB_TOKEN": "hunter2",
            "INFER_PLUGINS": "a",
            "OMP_NUM_THREADS": "2",
            "HOME": "/home/me",
        }
    )
    assert shown == {
        "INFER_API_KEY": "(set, not shown)",
        "INFER_HUB_TOKEN": "(set, not shown)",
        "INFER_PLUGINS": "a",
        "OMP_NUM_THREADS": "2",
    }


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        (
            "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu avx2 avx512f amx_bf16\n"
            "processor\t: 1\nmodel name\t: Another\n",
            "Some CPU @ 3 GHz",
            "avx2 avx512 amx_bf16",
        ),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 sve\n", None, "neon sve bf16"),
        ("", None, "not known"),
    ],
)
def test_cpu_facts_come_from_what_linux_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    model: str | None,
    flags: str,
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(hardware, "_CPUINFO", path)
    found = hardware.cpu_facts()
    assert model is None or found["cpu"] == model
    assert found["cpu flags"] == flags


@pytest.mark.parametrize(
    ("limit", "ending"), [("1073741824\n", ", limited to 1.0 GiB"), ("max\n", " available")]
)
def test_memory_facts_know_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, ending: str
) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:  4194304 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n")
    cgroup.write_text(limit)
    monkeypatch.setattr(hardware, "_MEMINFO", meminfo)
    monkeypatch.setattr(hardware, "_CGROUP_LIMITS", (cgroup,))
    memory = hardware.memory_facts()["memory"]
    assert memory.startswith("4.0 GiB, 2.0 GiB available")
    assert memory.endswith(ending)


def test_a_system_without_such_files_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_MEMINFO", tmp_path / "absent")
    assert hardware.memory_facts() == {"memory": "not known"}
