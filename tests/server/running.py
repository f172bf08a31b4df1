"""A served model: ``infer serve`` as a process of its own, with clients for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
from prometheus_client.parser import text_string_to_metric_families

START_SECONDS = 60
ANSWER_SECONDS = 60
# Made once: a client reads all root certificates for its own, which takes longer than to answer.
_TLS = ssl.create_default_context()
_READY = re.compile(r"infer: (.+) is ready at (\S+?)(?:/v1)?$")


@dataclass
class Served:
    """One process. ``stop`` ends it; ``lines`` are what it has printed so far."""

    process: subprocess.Popen[str]
    url: str = ""
    model: str = ""
    lines: list[str] = field(default_factory=list)
    _seen: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if match := _READY.match(self.lines[-1]):
                self.model, self.url = match.groups()
                self._seen.set()
        self._seen.set()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_line(self, word: str, seconds: float = 5) -> str:
        """Return the first line with *word*; it may come a moment after the ready line."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [line for line in self.lines if word in line]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"no line with {word!r}:\n{self.output}")

    def wait_ready(self) -> Served:
        """Wait for the line that says so; the server must not end before it."""
        assert self._seen.wait(START_SECONDS), f"not ready in time:\n{self.output}"
        assert self.url, f"ended with {self.exit_code()} before it was ready:\n{self.output}"
        return self

    def exit_code(self, timeout: float = 30) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """End the process and everything it has started."""
        if self.process.poll() is None:
            family = self.children()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.send_signal(signal.SIGTERM)
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                for member in [*family, psutil.Process(self.process.pid)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
                self.process.wait(15)
        self._reader.join(15)

    @contextlib.contextmanager
    def http(self, **options: Any) -> Iterator[httpx.Client]:
        common: Any = {"base_url": self.url, "timeout": ANSWER_SECONDS, "verify": _TLS}
        with httpx.Client(**common | options) as client:
            yield client

    def async_http(self, **options: Any) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        common: Any = {"base_url": self.url, "timeout": ANSWER_SECONDS, "verify": _TLS}
        return httpx.AsyncClient(**common | {"limits": limits} | options)

    def openai(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=ANSWER_SECONDS
        )

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        with self.http() as client:
            return client.post(path, json=body, **options) if body else client.post(path, **options)

    def get(self, path: str) -> httpx.Response:
        with self.http() as client:
            return client.get(path)

    def chat(self, text: str = "Hi", **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": text}]
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields)

    def complete(self, prompt: Any = "x", **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0} | fields)

    def text(self, prompt: Any = "x", **fields: Any) -> str:
        response = self.complete(prompt, **fields)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with its labels, without those of histogram buckets."""
        return parse_metrics(self.get("/metrics").text)

    def wait_idle(self, seconds: float = 10) -> dict[str, float]:
        """Wait until nothing runs, waits or holds a block; return the metrics of that moment.

        Blocks of a request that has ended are given back when the steps in flight have retired.
        """
        end = time.monotonic() + seconds
        while True:
            found = self.metrics()
            busy = found["infer_requests_running"] + found["infer_requests_waiting"]
            busy += found["infer_kv_cache_usage_ratio"]
            if not busy or time.monotonic() > end:
                return found
            time.sleep(0.1)


def parse_metrics(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "le" not in sample.labels:
                labels = "".join(f"{{{v}}}" for _, v in sorted(sample.labels.items()))
                found[sample.name + labels] = sample.value
    return found


def serve(
    model: Path | str,
    *flags: str,
    port: int = 0,
    env: dict[str, str] | None = None,
    python: Path | str = sys.executable,
) -> Served:
    """Start ``infer serve`` of an interpreter's environment; does not wait for it."""
    command = [str(python), "-m", "infer", "serve"]
    command += [*filter(None, [str(model)]), "--port", str(port), *flags]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    return Served(process, f"http://127.0.0.1:{port}" if port else "")


@contextlib.contextmanager
def served(model: Path | str, *flags: str, **options: Any) -> Iterator[Served]:
    """A server that is ready, ended when the block ends."""
    running = serve(model, *flags, **options)
    try:
        yield running.wait_ready()
    finally:
        running.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@dataclass(frozen=True)
class Event:
    """One server-sent event: its name, and its data as JSON (or "[DONE]")."""

    name: str
    data: Any


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a streamed answer's lines."""
    name = "message"
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield Event(name, data if data == "[DONE]" else json.loads(data))
            name = "message"


@dataclass(frozen=True)
class Stream:
    """A streamed answer that was read to its end."""

    events: list[Event]

    @property
    def chunks(self) -> list[Any]:
        return [event.data for event in self.events if isinstance(event.data, dict)]

    @property
    def choices(self) -> list[Any]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", ())]

    @property
    def text(self) -> str:
        parts = (c["text"] if "text" in c else c["delta"].get("content", "") for c in self.choices)
        return "".join(parts)

    @property
    def finish_reason(self) -> str | None:
        reasons = [c["finish_reason"] for c in self.choices if c["finish_reason"]]
        return reasons[-1] if reasons else None

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1].data == "[DONE]"

    @property
    def error(self) -> Any:
        errors = [event.data["error"] for event in self.events if event.name == "error"]
        return errors[-1] if errors else None


async def stream(
    client: httpx.AsyncClient, body: dict[str, Any], path: str = "/v1/completions", **options: Any
) -> Stream:
    """Ask for a stream and read it to the end."""
    fields = {"temperature": 0, "stream": True} | body
    async with client.stream("POST", path, json=fields, **options) as response:
        if response.status_code != 200:
            text = (await response.aread()).decode()
            raise AssertionError(f"status {response.status_code}: {text}")
        lines = [line async for line in response.aiter_lines()]
    return Stream(list(parse_events(lines)))


def streamed(served: Served, body: dict[str, Any], path: str = "/v1/completions") -> Stream:
    """Ask for one stream and read it to the end."""

    async def ask() -> Stream:
        async with served.async_http() as client:
            return await stream(client, body, path)

    return asyncio.run(ask())
