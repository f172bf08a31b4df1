"""The listening socket: bound first, refused in one line."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from infer.config.errors import UserError
from infer.server.settings import ServerSettings
from infer.server.sockets import close, listen, url_of


def test_port_0_takes_a_free_one_and_the_url_names_it() -> None:
    settings = ServerSettings(port=0)
    listener = listen(settings)
    port = listener.getsockname()[1]
    assert url_of(listener, settings) == f"http://127.0.0.1:{port}"
    close(listener, settings)


def test_a_server_on_all_addresses_is_reached_on_this_machine() -> None:
    settings = ServerSettings(host="0.0.0.0", port=0)
    listener = listen(settings)
    assert url_of(listener, settings).startswith("http://127.0.0.1:")
    close(listener, settings)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"host 127\.0\.0\.1, port {port}: .*in use"):
            listen(ServerSettings(port=port))


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3", "192.0.2.1", "no such host"])
def test_a_host_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(UserError, match=f"host {host}, port 0"):
        listen(ServerSettings(host=host, port=0))


def test_a_port_without_the_rights_for_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unprivileged(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("infer.server.sockets.socket.socket", Unprivileged)
    with pytest.raises(UserError, match=r"host 127\.0\.0\.1, port 80: permission denied; .*1024"):
        listen(ServerSettings(port=80))


def test_a_unix_socket_is_made_and_removed(socket_path: str) -> None:
    settings = ServerSettings(uds=socket_path)
    listener = listen(settings)
    assert stat.S_ISSOCK(os.stat(socket_path).st_mode)
    close(listener, settings)
    assert not os.path.exists(socket_path)


def test_the_socket_file_of_a_server_that_is_gone_is_replaced(socket_path: str) -> None:
    settings = ServerSettings(uds=socket_path)
    listen(settings).close()
    listener = listen(settings)
    with pytest.raises(UserError, match="another program"):
        listen(settings)
    close(listener, settings)


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(UserError, match="no socket"):
        listen(ServerSettings(uds=str(path)))
    assert path.read_text() == "mine"


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, ssl_certfile=str(tmp_path / "c"), ssl_keyfile="k")
    with pytest.raises(UserError, match="--ssl-certfile"):
        listen(settings)


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"port": 70000}, "--port"),
        ({"api_keys": ("",)}, "API key"),
        ({"ssl_keyfile": "k"}, "--ssl-certfile"),
        ({"max_queue": 0}, "--max-queue"),
        ({"max_body_size": 0}, "--max-body-size"),
        ({"drain_timeout": -1}, "--drain-timeout"),
        ({"request_timeout": 0}, "--request-timeout"),
    ],
)
def test_settings_that_cannot_be_are_named(values: dict[str, Any], flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        ServerSettings(**values)


@pytest.fixture
def socket_path() -> Any:
    """A short path: those of Unix sockets may have about 100 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"{folder}/s"
