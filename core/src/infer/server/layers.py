"""What every request passes before a route sees it: identity and log, key, readiness."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infer.server.calls import Call
from infer.server.errors import CLIENT_GONE, ApiError, ClientGoneError, api_error, unauthorized
from infer.server.state import Phase, ServerState, key_digests

log = logging.getLogger("infer.access")

CALL = "infer.call"
OPEN_PATHS = frozenset({"/health", "/ready", "/version"})
METRICS_PATH = "/metrics"
_POLLED = OPEN_PATHS | {METRICS_PATH}
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_LONGEST_PATH = 128


class CallLayer:
    """Names each call, holds it open, turns exceptions into answers and writes the access log."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope["method"], scope["path"], _request_id(scope))
        scope[CALL] = call

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                MutableHeaders(raw=message["headers"])["X-Request-Id"] = call.request_id
            await send(message)

        with self.state.calls.hold(call):
            try:
                await self.app(scope, receive, send_named)
            except ClientGoneError:
                call.status = CLIENT_GONE
                self.state.metrics.failed("disconnected")
            except Exception as error:
                if call.status:
                    raise
                await self._answer(error, call)(scope, receive, send_named)
            finally:
                _log_access(call)

    def _answer(self, error: Exception, call: Call) -> Response:
        answer = api_error(error)
        if answer is None:
            log.error("%s %s failed", call.method, call.path[:_LONGEST_PATH], exc_info=error)
            answer = ApiError(
                500, "internal error; the server's log has it", kind="server_error", reason="engine"
            )
        if call.method == "POST":
            self.state.metrics.failed(answer.reason)
        return error_response(answer)


class KeyLayer:
    """Lets nothing through without a key but a few exact paths."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], open_paths: frozenset[str]) -> None:
        self.app = app
        self.digests = key_digests(keys)
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in self.open_paths and not self._allowed(Headers(scope=scope)):
            raise unauthorized()
        await self.app(scope, receive, send)

    def _allowed(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        # Compare with every key: the time must not tell which one was close.
        matches = [hmac.compare_digest(digest, known) for known in self.digests]
        return scheme.lower() == "bearer" and any(matches)


class ReadyLayer:
    """Answers for everything but the state routes while no request is taken."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.state.phase is not Phase.RUNNING and scope["path"] not in _POLLED:
            raise self.state.refusal()
        await self.app(scope, receive, send)


def error_response(error: ApiError) -> Response:
    return Response(
        error.body(), status_code=error.status, media_type="application/json", headers=error.headers
    )


def _request_id(scope: Scope) -> str:
    """Return the client's id if it can stand in a header and a log line, else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _log_access(call: Call) -> None:
    level = logging.DEBUG if call.path in _POLLED else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields: dict[str, object] = {
        "method": call.method,
        "path": call.path[:_LONGEST_PATH],
        "status": call.status or CLIENT_GONE,
        "request_id": call.request_id,
        "id": call.unique_id,
        "ms": round((time.time() - call.arrival) * 1e3, 1),
    }
    if call.prompt_tokens:
        fields |= {"prompt_tokens": call.prompt_tokens, "output_tokens": call.output_tokens}
    log.log(level, "request", extra=fields)
