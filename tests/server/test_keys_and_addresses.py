"""Who may ask, and where the server listens."""

from __future__ import annotations

import pickle
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.server.running import Served, served

KEY = "sk-test-key"
OPEN = {"/health", "/ready", "/version"}
ROUTES = (
    *("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/alphabet", "/metrics"),
    *("/", "/docs", "/openapi.json", "/ping", "/tokenize", "/v1/load_lora_adapter", "/v1/plugins"),
    *("//v1/models", "/v1/../v1/models", "/V1/MODELS", "/health/../v1/models", "/health//"),
    *("/health%2f..%2fv1%2fmodels", "/%76%31/models", "/v1/models?x=/health", "/ready;/v1/models"),
)


@pytest.fixture(scope="module")
def locked(models: Callable[[str], Path]) -> Iterator[Served]:
    with served(models("alphabet"), "--api-key", "other", env={"INFER_API_KEY": KEY}) as server:
        yield server


def raw(server: Served, method: str, path: str, key: str = "") -> int:
    """Return the status of a request whose path no client library has tidied up."""
    host, port = server.url.removeprefix("http://").split(":")
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ROUTES)
def test_without_a_key_nothing_answers(locked: Served, method: str, path: str) -> None:
    """SEC-05"""
    assert raw(locked, method, path) == 401


def test_the_state_routes_answer_without_a_key(locked: Served) -> None:
    """SEC-05"""
    assert {path: raw(locked, "GET", path) for path in OPEN} == dict.fromkeys(OPEN, 200)


@pytest.mark.parametrize("key", [KEY, "other"])
def test_with_a_key_the_routes_work(locked: Served, key: str) -> None:
    """SEC-05"""
    client = locked.openai(key)
    assert client.models.list().data
    answer = client.completions.create(model="alphabet", prompt="x", temperature=0)
    assert answer.choices[0].text == "ABCDEFGHIJKLMNOP"
    assert raw(locked, "GET", "/metrics", key) == 200


def test_a_wrong_key_is_told_in_openais_shape(locked: Served) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        locked.openai("wrong").models.list()
    assert caught.value.code == "invalid_api_key"


def test_the_key_is_in_no_log(locked: Served) -> None:
    locked.openai(KEY).models.list()
    assert KEY not in locked.output


def test_only_the_http_port_listens(models: Callable[[str], Path], tmp_path: Path) -> None:
    """SEC-03"""
    marker = tmp_path / "marker"

    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (marker,)

    with served(models("alphabet"), "--host", "0.0.0.0") as server:
        port = int(server.url.rsplit(":", 1)[1])
        family = [psutil.Process(server.process.pid), *server.children()]
        listening = [
            connection.laddr
            for member in family
            for connection in member.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {address.port for address in listening} == {port}
        sockets = [c.laddr for m in family for c in m.net_connections("unix") if c.laddr]
        for path in filter(None, sockets):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(2)
                connection.connect(path)
                connection.sendall(pickle.dumps(Harm()))
        assert server.text(max_tokens=20) == "ABCDEFGHIJKLMNOP"
    assert not marker.exists()


def test_a_unix_socket_replaces_the_port(models: Callable[[str], Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/infer.sock"
        with served(models("alphabet"), "--uds", path):
            transport = httpx.HTTPTransport(uds=path)
            with httpx.Client(transport=transport, base_url="http://infer") as client:
                assert client.get("/ready").status_code == 200
        assert not Path(path).exists()
