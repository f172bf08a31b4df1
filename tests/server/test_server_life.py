"""Starting, draining, dying: what clients and operators see."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.server.running import Served, Stream, free_port, serve, served, stream


def gone(processes: list[psutil.Process]) -> bool:
    """Whether all have ended within a moment."""
    _, alive = psutil.wait_procs(processes, timeout=5)
    return not alive


async def until_running(server: Served, count: int) -> None:
    """Wait until the engine computes *count* requests."""
    for _ in range(100):
        metrics = await asyncio.to_thread(server.metrics)
        if metrics["infer_requests_running"] >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{count} requests never ran:\n{server.output}")


def streams_across(
    server: Served, event: Callable[[], None], count: int = 3, max_tokens: int = 1500
) -> tuple[list[Any], int | None]:
    """Stream *count* answers, let *event* happen meanwhile; return answers and a new one's status.

    The status is None when the server takes no connection any more.
    """

    async def ask_again() -> int | None:
        try:
            async with server.async_http() as client:
                response = await client.post("/v1/completions", json={"prompt": "x"})
                return response.status_code
        except httpx.TransportError:
            return None

    async def test() -> tuple[list[Any], int | None]:
        async with server.async_http() as client:
            body = {"prompt": "x", "max_tokens": max_tokens}
            open_answers = [asyncio.create_task(stream(client, body)) for _ in range(count)]
            await until_running(server, count)
            event()
            await asyncio.sleep(0.2)
            status = await ask_again()
            return await asyncio.gather(*open_answers, return_exceptions=True), status

    return asyncio.run(test())


def test_a_drain_lets_open_answers_end_and_refuses_new_ones(
    models: Callable[[str], Path],
) -> None:
    """OPS-01"""
    with served(models("loop"), "--drain-timeout", "30") as server:
        family = server.children()
        answers, status = streams_across(
            server, lambda: server.signal(signal.SIGTERM), max_tokens=600
        )
        assert server.exit_code(30) == 0, server.output
    for answer in answers:
        assert isinstance(answer, Stream), answer
        assert answer.done
        assert answer.text.count("one ") == 150
    assert status in (503, None)
    assert gone(family)


def test_ctrl_c_drains_too_although_every_process_gets_it(models: Callable[[str], Path]) -> None:
    with served(models("loop"), "--drain-timeout", "30") as server:
        family = server.children()
        answers, _ = streams_across(
            server, lambda: os.killpg(server.process.pid, signal.SIGINT), count=1, max_tokens=600
        )
        assert server.exit_code(30) == 0, server.output
    assert answers[0].done
    assert gone(family)


def cut_off(server: Served, event: Callable[[], None]) -> None:
    family = server.children()
    began = time.monotonic()
    answers, _ = streams_across(server, event)
    assert server.exit_code(10) == 0, server.output
    assert time.monotonic() - began < 10
    for answer in answers:
        assert isinstance(answer, Stream), answer
        assert not answer.done
        assert "shutting down" in answer.error["message"]
    assert gone(family)


def test_without_drain_time_open_answers_end_with_an_error_event(
    models: Callable[[str], Path],
) -> None:
    """OPS-01"""
    with served(models("loop"), "--drain-timeout", "0") as server:
        cut_off(server, lambda: server.signal(signal.SIGTERM))


def test_a_second_signal_ends_the_drain(models: Callable[[str], Path]) -> None:
    """OPS-01"""

    def twice() -> None:
        server.signal(signal.SIGTERM)
        time.sleep(0.1)
        server.signal(signal.SIGTERM)

    with served(models("loop"), "--drain-timeout", "30") as server:
        cut_off(server, twice)


def test_an_idle_server_ends_at_once(models: Callable[[str], Path]) -> None:
    with served(models("loop")) as server, server.http() as client:
        client.get("/ready")
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.exit_code(10) == 0
        assert time.monotonic() - began < 5


def test_when_the_engine_is_killed_every_open_request_hears_of_it(
    models: Callable[[str], Path],
) -> None:
    """Acceptance 7"""
    with served(models("loop")) as server:
        (engine,) = [child for child in server.children() if child.memory_info().rss > 100 << 20]
        family = server.children()
        began = time.monotonic()
        answers, status = streams_across(server, engine.kill)
        assert server.exit_code(10) == 1
        assert time.monotonic() - began < 10
    for answer in answers:
        if isinstance(answer, Stream):
            assert not answer.done
            assert "engine" in answer.error["message"]
        else:
            # It had not begun to stream, so it still got a status of its own.
            assert "status 500" in str(answer)
            assert "the engine process ended with signal 9" in str(answer)
    assert status in (500, 503, None)
    assert "infer: error: the engine has failed" in server.output
    assert "Traceback" not in server.output
    assert gone(family)


def test_when_the_server_is_killed_the_engine_ends_too(models: Callable[[str], Path]) -> None:
    with served(models("loop")) as server:
        family = server.children()
        server.process.kill()
        server.exit_code()
        assert gone(family)


def refused(process: Served, *names: str) -> None:
    """The process ends with 2 within 5 s and one line that has all *names*."""
    began = time.monotonic()
    try:
        assert process.exit_code(10) == 2, process.output
    finally:
        process.stop()
    assert time.monotonic() - began < 5
    (line,) = process.output.splitlines()
    assert line.startswith("infer: error: ")
    assert all(name in line for name in names), line


def test_a_taken_port_is_refused_before_anything_is_read(models: Callable[[str], Path]) -> None:
    """OPS-03"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(serve(models("loop"), port=port), "127.0.0.1", str(port), "in use")


def test_a_host_that_does_not_exist_is_refused(models: Callable[[str], Path]) -> None:
    """OPS-03"""
    port = free_port()
    refused(serve(models("loop"), "--host", "999.1.1.1", port=port), "999.1.1.1", str(port))


def _first_unprivileged_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except OSError:
        return 1024


@pytest.mark.skipif(
    os.geteuid() == 0 or _first_unprivileged_port() <= 80, reason="this user may take every port"
)
def test_a_privileged_port_is_refused(models: Callable[[str], Path]) -> None:
    """OPS-03"""
    refused(serve(models("loop"), port=80), "127.0.0.1", "80")


def test_a_model_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    refused(serve(tmp_path / "nothing", env={"INFER_OFFLINE": "1"}), "nothing")


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--max-model-len", "99999"), "99999"),
        (("--kv-cache-memory-bytes", "1000"), "1000"),
        (("--kv-cache-memory-bytes", str(16 * 16 * 2048), "--max-model-len", "2048"), "2048"),
        (("--attention-backend", "nope"), "nope"),
        (("--max-num-seqs", "0"), "--max-num-seqs"),
        (("--drain-timeout", "-1"), "--drain-timeout"),
    ],
)
def test_flags_that_cannot_be_are_refused(
    models: Callable[[str], Path], flags: tuple[str, ...], word: str
) -> None:
    process = serve(models("loop"), *flags)
    try:
        assert process.exit_code(30) == 2, process.output
    finally:
        process.stop()
    assert word in process.output
    assert "Traceback" not in process.output


def test_ready_is_said_only_when_a_chat_succeeds(models: Callable[[str], Path]) -> None:
    """OPS-05"""
    port = free_port()
    seen: set[tuple[str, int]] = set()
    server = serve(models("loop"), port=port)
    end = time.monotonic() + 60
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            while time.monotonic() < end and ("/ready", 200) not in seen:
                for path in ("/v1/models", "/health", "/ready"):
                    try:
                        seen.add((path, client.get(path).status_code))
                    except httpx.TransportError:
                        continue
                time.sleep(0.02)
        assert server.chat(max_tokens=3).status_code == 200
    finally:
        server.stop()
    assert {status for _, status in seen} <= {200, 503}
    assert ("/ready", 503) in seen


def test_a_signal_while_the_model_loads_ends_the_server(models: Callable[[str], Path]) -> None:
    port = free_port()
    server = serve(models("loop"), port=port)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx.TransportError:
                time.sleep(0.02)
        family = server.children()
        server.signal(signal.SIGINT)
        assert server.exit_code(15) == 130, server.output
        assert gone(family)
    finally:
        server.stop()


def test_the_api_process_imports_neither_torch_nor_transformers(
    models: Callable[[str], Path],
) -> None:
    with served(models("loop")) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        if not maps.exists():
            pytest.skip("needs /proc")
        assert server.text(max_tokens=4) == "one two three four "
        assert "libtorch" not in maps.read_text()


def test_logs_can_be_json(models: Callable[[str], Path]) -> None:
    with served(models("loop"), "--log-format", "json") as server:
        server.text("my secret prompt", max_tokens=2)
    line = next(line for line in server.lines if '"/v1/completions"' in line)
    assert '"status": 200' in line
    assert '"output_tokens": 2' in line
    assert "secret" not in server.output


def test_the_ready_line_shows_a_curl_command_that_works(models: Callable[[str], Path]) -> None:
    with served(models("alphabet")) as server:
        command = server.wait_line("curl").strip()
        found = subprocess.run(
            ["bash", "-c", command.replace("curl ", "curl -s ", 1)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    if "not found" in found.stderr:
        pytest.skip("needs curl")
    assert '"content":"ABC' in found.stdout
