"""Compiled kernels on disk: written whole, trusted only when whole and ours."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infer_numba import store
from infer_numba.library import library
from infer_numba.prepare import is_prepared, prepare
from infer_numba.store import Kernels, entry_path, load_entry, save_entry
from infer_plugin_api.errors import UnsupportedError
from infer_plugin_api.prepare import PrepareContext

SOME = Kernels(code=b"\x7fELF", names=("a", "b"), lanes=8)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFER_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_entry_is_read_back_as_written(own_cache: Path) -> None:
    path = save_entry(SOME)
    assert load_entry() == SOME
    assert path.is_relative_to(own_cache)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_an_entry_nothing_is_prepared_and_loading_says_what_to_do(
    own_cache: Path, fresh_library: None
) -> None:
    assert not is_prepared()
    with pytest.raises(UnsupportedError, match="run `infer tune`"):
        library()
    assert not list(own_cache.iterdir())


@pytest.mark.parametrize("at", [0, 30, 90, -1])
def test_damaged_entry_is_a_miss(at: int, own_cache: Path) -> None:
    path = save_entry(SOME)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert load_entry() is None
    assert not is_prepared()


@pytest.mark.parametrize("length", [0, 10, 60, 120])
def test_short_entry_is_a_miss(length: int, own_cache: Path) -> None:
    path = save_entry(SOME)
    path.write_bytes(path.read_bytes()[:length])
    assert load_entry() is None


def test_entry_that_others_may_write_is_a_miss(own_cache: Path) -> None:
    save_entry(SOME).chmod(0o666)
    assert load_entry() is None


def test_entry_is_kept_per_processor_and_compiler(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = entry_path()
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    second = entry_path()
    monkeypatch.setattr(store, "_version", lambda distribution: "99")
    assert len({first, second, entry_path()}) == 3


def test_cache_folder_follows_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert store.cache_folder() == Path("/somewhere/infer/numba")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.cache_folder() == Path("~/.cache/infer/numba").expanduser()


def test_preparing_again_compiles_nothing() -> None:
    lines: list[str] = []
    before = entry_path().stat().st_mtime_ns
    prepare(PrepareContext(announce=lines.append))
    assert lines == ["numba kernels are compiled for this machine already"]
    assert entry_path().stat().st_mtime_ns == before


def _python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_loading_imports_no_numba_and_asking_imports_no_torch() -> None:
    code = (
        "import sys, infer_numba; from infer_numba.prepare import is_prepared\n"
        "infer_numba.infer_ops(); infer_numba.infer_attention_backends()\n"
        "assert is_prepared()\n"
        "print('torch' in sys.modules, 'llvmlite' in sys.modules)\n"
        "from infer_numba.ops import RmsNorm; RmsNorm()\n"
        "print('numba' in sys.modules)"
    )
    assert _python(code).split() == ["False", "False", "False"]


def test_kernels_load_in_a_fraction_of_a_second() -> None:
    code = (
        "import time, torch; from infer_numba.library import library; start = time.monotonic()\n"
        "library(); print(time.monotonic() - start)"
    )
    assert min(float(_python(code)) for _ in range(2)) < 0.3


HASWELL = "+avx,+avx2,+bmi,+bmi2,+cmov,+cx16,+cx8,+f16c,+fma,+lzcnt,+mmx,+movbe,+popcnt,+sse,"
HASWELL += "+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"


@pytest.mark.parametrize(
    ("cpu", "features", "lanes"),
    [("haswell", HASWELL, 8), ("x86-64", "+cx8,+mmx,+sse,+sse2", 4)],
    ids=["avx2", "sse2"],
)
def test_older_processors_get_right_results(
    cpu: str, features: str, lanes: int, tmp_path: Path
) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("compiles for x86-64 processors")
    if library().lanes == lanes:
        pytest.skip("this processor is such a one: the other tests show it")
    code = f"""
import torch
from infer_plugin_api.prepare import PrepareContext
from infer_numba.prepare import prepare
prepare(PrepareContext(announce=print))
from infer_numba.library import library
assert library().lanes == {lanes}, library().lanes
from infer_plugin_api.testing.attention import attention_cases, PagedCase, assert_accurate
from infer_numba.attention import NumbaAttention
for case in attention_cases()[::4]:
    for dtype in ("float32", "bfloat16"):
        paged = PagedCase(case, dtype, dtype)
        backend = NumbaAttention(paged.context)
        out = torch.full_like(paged.query, float("nan")).contiguous()
        backend.forward(paged.query, paged.cache, backend.prepare(paged.batch), out)
        assert_accurate(out, paged.exact(), paged.reference(), str(case))
import infer_numba
from infer_plugin_api.testing.ops import op_suites
suites = op_suites(infer_numba.infer_ops())
for dtype in ("float32", "bfloat16"):
    suites["TestRmsNorm"]().test_norm_is_as_accurate_as_torch(5, 100, dtype)
    suites["TestAddRmsNorm"]().test_sum_is_kept_and_normed(5, 100, dtype)
    suites["TestSiluMul"]().test_product_is_as_accurate_as_torch(5, 100, dtype)
    suites["TestGreedySample"]().test_index_of_the_largest_logit(3, 1000, dtype)
    suites["TestRopeStoreKV"]().test_rotated_keys_and_values_are_stored(5, 4, 4, 80, 32, dtype)
print("right")
"""
    output = _python(
        code, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features, INFER_CACHE_DIR=str(tmp_path)
    )
    assert output.endswith("right")


def test_fingerprint_is_cheap() -> None:
    start = time.monotonic()
    for _ in range(10):
        entry_path()
    assert time.monotonic() - start < 1
