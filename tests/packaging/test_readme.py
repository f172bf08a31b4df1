"""A newcomer's first commands, copied out of the README."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import Served, serve
from tools.readme import setup_command
from tools.workspace import ROOT

INSTALL_SECONDS = 900
SUITE_SECONDS = 2400


def streamed_answer(server: Served) -> str:
    """Ask the way the README does: OpenAI's client, streaming."""
    client = server.openai()
    chunks = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "How many days are in a week?"}],
        max_tokens=24,
        temperature=0,
        stream=True,
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert sum(map(bool, pieces)) > 3, "the answer came in one piece"
    return "".join(pieces)


def test_serve_without_an_argument_streams_a_sensible_answer(smollm2_path: Path) -> None:
    server = serve("")
    try:
        assert "7 days" in streamed_answer(server.wait_ready())
    finally:
        server.stop()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `git clone` gives a newcomer."""
    folder = tmp_path_factory.mktemp("fresh") / "infer"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True, timeout=120)
    return folder


@contextlib.contextmanager
def typed(command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a line in a shell of its own, as a terminal would; whatever it started is ended."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("INFER_", "TOX_", "VIRTUAL_ENV", "PYTHON", "HF_", "OMP_"))
    }
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.acceptance
@pytest.mark.timeout(INSTALL_SECONDS)
def test_the_serve_command_of_the_readme_serves(clone: Path) -> None:
    """Acceptance 1"""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            pytest.skip("port 8000, which the README's command uses, is taken")
    with typed(setup_command("serve"), clone) as process:
        server = Served(process)
        assert server._seen.wait(INSTALL_SECONDS)
        assert server.url, server.output
        assert "7 days" in streamed_answer(server)
        os.killpg(process.pid, signal.SIGINT)
        server.exit_code(60)
    assert "Traceback" not in server.output


@pytest.mark.acceptance
@pytest.mark.timeout(SUITE_SECONDS)
def test_the_test_command_of_the_readme_passes(clone: Path) -> None:
    """Acceptance 1"""
    shutil.rmtree(clone / ".venv", ignore_errors=True)
    with typed(setup_command("test"), clone) as process:
        output, _ = process.communicate(timeout=SUITE_SECONDS)
    assert process.returncode == 0, output[-4000:]
    assert " passed" in output
