"""The listening socket, bound before anything else so that a taken port shows at once."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
import stat
from contextlib import suppress

from infer.config.errors import UserError
from infer.server.settings import ServerSettings

_BACKLOG = 2048
_LOOKS_LIKE_IPV4 = re.compile(r"[0-9.]+")
_PRIVILEGED = 1024


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket. Raises UserError naming host and port, or the path."""
    _check_certificate(settings)
    return _unix(settings.uds) if settings.uds is not None else _tcp(settings.host, settings.port)


def url_of(listener: socket.socket, settings: ServerSettings) -> str:
    """Return the address to type into a client on this machine."""
    if settings.uds is not None:
        return "http://localhost"
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.ssl_certfile else 'http'}://{shown}:{port}"


def close(listener: socket.socket, settings: ServerSettings) -> None:
    """Close the socket and remove its file."""
    listener.close()
    if settings.uds is not None:
        with suppress(FileNotFoundError):
            os.unlink(settings.uds)


def _tcp(host: str, port: int) -> socket.socket:
    where = f"can't listen on host {host}, port {port}"
    family, address = _resolve(host, port, where)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(f"{where}: {_reason(error, port)}") from error
    return listener


def _resolve(host: str, port: int, where: str) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    if _LOOKS_LIKE_IPV4.fullmatch(host):
        # A resolver would ask the network about a misspelt address, and wait for the answer.
        try:
            ipaddress.IPv4Address(host)
        except ValueError as error:
            raise UserError(f"{where}: it is no IP address") from error
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UserError(f"{where}: the host name is not known ({error.strerror})") from error
    family, _, _, _, address = found[0]
    return family, address


def _reason(error: OSError, port: int) -> str:
    text = (error.strerror or str(error)).lower()
    if isinstance(error, PermissionError) and port < _PRIVILEGED:
        return f"{text}; ports below {_PRIVILEGED} need special rights, choose a higher --port"
    if port and "in use" in text:
        return f"{text}; stop the other program or choose another --port"
    return text


def _unix(path: str) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(f"can't listen on --uds {path}: {error.strerror or error}") from error
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket file of a server that is gone; refuse when one still answers."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise UserError(f"can't listen on --uds {path}: the file exists and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise UserError(f"can't listen on --uds {path}: another program listens there")


def _check_certificate(settings: ServerSettings) -> None:
    if settings.ssl_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
    except OSError as error:
        raise UserError(
            f"--ssl-certfile {settings.ssl_certfile} with --ssl-keyfile {settings.ssl_keyfile} "
            f"can't be used: {error.strerror or error}"
        ) from error
