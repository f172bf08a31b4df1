"""Reading a request's JSON body within limits."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from infer.server.errors import ApiError, ClientGoneError, bad_request

log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_AT = re.compile(r" - at `(?:key in `)?\$\.?([^`]*)`")
_LINGER_SECONDS = 5.0
_told: set[str] = set()


async def read_json(scope: Scope, receive: Receive, limit: int, kind: type[T]) -> T:
    """Return the body as *kind*.

    Raises ApiError 400, 413 or 415, and ClientGoneError when the body breaks off.
    """
    headers = Headers(scope=scope)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ApiError(
            415, f"Content-Encoding {encoding[:50]!r} is not accepted; send the body as it is"
        )
    content_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    # Other types need no CORS preflight: any web page could make a browser send them here.
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise ApiError(
            415, f"Content-Type {content_type[:100]!r} is not accepted; use application/json"
        )
    return _decode(await _read(headers, receive, limit), kind)


async def _read(headers: Headers, receive: Receive, limit: int) -> bytes:
    chunks = _chunks(receive)
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        await _linger(chunks)
        raise _too_large(limit)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            body.clear()
            await _linger(chunks)
            raise _too_large(limit)
    return bytes(body)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body's parts as they come."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _linger(chunks: AsyncIterator[bytes]) -> None:
    """Take in and drop what the client still sends, for a while.

    Closing at once would reset the connection, and the client would never read the answer.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            async for _ in chunks:
                # A body that is there already never lets the timeout run by itself.
                await asyncio.sleep(0)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than the {limit} bytes that this server takes (--max-body-size)",
        code="request_too_large",
        headers={"Connection": "close"},
    )


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        request = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        param = match[1] or None if (match := _AT.search(str(error))) else None
        message = _AT.sub("", str(error)).replace("`", "'")
        raise bad_request(param, f"{param}: {message}" if param else message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(None, f"the body is no valid JSON: {error}") from error
    except RecursionError as error:
        raise bad_request(None, "the body is nested too deeply") from error
    if log.isEnabledFor(logging.DEBUG):
        _tell_unknown(body, kind)
    return request


def _tell_unknown(body: bytes, kind: type[msgspec.Struct]) -> None:
    """Log each field that nobody reads, once; OpenAI's API ignores them too."""
    names = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name in sorted(set(names) - set(kind.__struct_fields__) - _told):
        _told.add(name)
        log.debug("the request field %r is unknown and has no effect", name[:100])
