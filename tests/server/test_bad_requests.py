"""Requests that are wrong, huge or hostile: a 4xx in OpenAI's shape, soon, and nobody else hurt."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from tests.server.running import Served

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
JSON = {"Content-Type": "application/json"}
ANSWER_WITHIN = 5.0


@pytest.fixture(autouse=True)
def the_server_still_answers(alphabet: Served) -> Iterator[None]:
    """After every bad request a good one gets its answer."""
    yield
    assert alphabet.text(max_tokens=20) == "ABCDEFGHIJKLMNOP"


def assert_refused(response: httpx.Response, statuses: tuple[int, ...] = (400,)) -> None:
    assert response.status_code in statuses, response.text[:500]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert len(response.content) < 20_000


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b'{"messages":', b"\xff\xfe\x7b", b""])
def test_a_malformed_body(alphabet: Served, path: str, body: bytes) -> None:
    """API-15"""
    assert_refused(alphabet.post(path, content=body, headers=JSON))


def test_thousands_of_wrong_messages(alphabet: Served) -> None:
    """API-15"""
    messages = [{"role": "user", "content": {"x": 1}}] * 5000
    assert_refused(alphabet.post(CHAT, {"model": alphabet.model, "messages": messages}))


def test_a_response_format_that_is_not_there_yet(alphabet: Served) -> None:
    """API-15"""
    assert_refused(alphabet.chat(response_format={"type": "json_schema", "schema": {}}))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1_000_000},
        {"n": -1},
        {"best_of": 100_000},
        {"logprobs": 10_000},
        {"prompt": ["x"] * 200_000},
        {"stop": [str(number) for number in range(100_000)]},
        {"prompt": "x" * 20_000_000},
        {"prompt": [1] * 2_000_000},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_numbers_and_lists_without_measure(alphabet: Served, fields: dict[str, Any]) -> None:
    """SEC-07"""
    began = time.monotonic()
    assert_refused(alphabet.complete(**{"prompt": "x"} | fields))
    assert time.monotonic() - began < ANSWER_WITHIN


def _huge() -> Iterator[bytes]:
    chunk = b"x" * (1 << 20)
    yield b'{"prompt": "'
    for _ in range(200):
        yield chunk


@pytest.mark.parametrize("with_length", [True, False])
def test_a_body_of_200_mb_is_a_413_and_takes_no_memory(alphabet: Served, with_length: bool) -> None:
    """SEC-07"""
    process = psutil.Process(alphabet.process.pid)
    before = process.memory_info().rss
    headers = JSON | ({"Content-Length": str(12 + (200 << 20))} if with_length else {})
    began = time.monotonic()
    response = alphabet.post(COMPLETIONS, content=_huge(), headers=headers)
    assert time.monotonic() - began < ANSWER_WITHIN
    assert_refused(response, (413,))
    assert process.memory_info().rss - before < 300 << 20


def test_health_answers_while_a_huge_body_comes_in(alphabet: Served) -> None:
    """SEC-07"""

    async def body() -> Any:
        for part in _huge():
            yield part

    async def test() -> list[float]:
        async with alphabet.async_http() as client:
            sending = asyncio.create_task(client.post(COMPLETIONS, content=body(), headers=JSON))
            times = []
            while not sending.done():
                began = time.monotonic()
                assert (await client.get("/health")).status_code == 200
                times.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
            assert (await sending).status_code == 413
            return times

    assert max(asyncio.run(test())) < 2.0


def test_a_compressed_body_is_not_expanded(alphabet: Served) -> None:
    """SEC-07"""
    bomb = gzip.compress(b"x" * (50 << 20))
    headers = JSON | {"Content-Encoding": "gzip"}
    assert_refused(alphabet.post(COMPLETIONS, content=bomb, headers=headers), (415,))


def test_json_nested_100000_deep(alphabet: Served) -> None:
    """SEC-07"""
    for field in ("x", "messages", "tools"):
        body = b'{"%s": ' % field.encode() + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert_refused(alphabet.post(CHAT, content=body, headers=JSON))


def test_headers_of_a_megabyte(alphabet: Served) -> None:
    """SEC-07"""
    host, port = alphabet.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        try:
            for _ in range(1024):
                connection.sendall(b"X-Long: " + b"a" * 1016 + b"\r\n")
            status = connection.recv(100)
        except ConnectionError:
            return
    assert status.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


def test_a_web_page_cannot_make_a_browser_ask_in_plain_text(alphabet: Served) -> None:
    body = json.dumps({"prompt": "x"})
    headers = {"Content-Type": "text/plain"}
    assert_refused(alphabet.post(COMPLETIONS, content=body, headers=headers), (415,))


@pytest.mark.parametrize(("method", "path"), [("GET", COMPLETIONS), ("PUT", CHAT), ("GET", "/x")])
def test_wrong_methods_and_paths(alphabet: Served, method: str, path: str) -> None:
    with alphabet.http() as client:
        assert_refused(client.request(method, path), (404, 405))


def test_a_template_can_refuse_what_a_chat_says(alphabet: Served) -> None:
    assert_refused(alphabet.chat(chat_template_kwargs={"tools": []}))
    assert_refused(alphabet.post(CHAT, {"messages": [{"role": "user"}]}))
