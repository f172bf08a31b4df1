"""Errors as clients see them: OpenAI's shape and the right status."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from infer.config.errors import EngineError, UserError
from infer.text.chat import ChatTemplateError
from infer_plugin_api.errors import PluginApiError
from infer_plugin_api.sampling import ParameterError

_LONGEST_MESSAGE = 2000
CLIENT_GONE = 499


class ApiError(Exception):
    """An answer that is an error.

    kind: the ``type`` field. param: the request's field that is wrong. code: a word for programs.
    reason: the value of ``infer_request_failure_total{reason}``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        reason: str = "invalid",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.reason = reason
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Return the JSON body. A long message is cut: it may quote what the client sent."""
        message = str(self)
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "…"
        error = {"message": message, "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


class ClientGoneError(Exception):
    """The client closed the connection; nobody reads the answer."""


def bad_request(param: str | None, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, what: str = "is not supported yet") -> ApiError:
    return bad_request(param, f"{param} {what}", "unsupported_parameter")


def unauthorized() -> ApiError:
    return ApiError(
        401,
        "the API key is missing or wrong; send the header 'Authorization: Bearer KEY'",
        kind="authentication_error",
        code="invalid_api_key",
        reason="unauthorized",
        headers={"WWW-Authenticate": "Bearer"},
    )


def model_not_found(name: str) -> ApiError:
    return ApiError(
        404,
        f"the model {name!r} does not exist; GET /v1/models lists what is served",
        param="model",
        code="model_not_found",
        reason="not_found",
    )


def overloaded(waiting: int, limit: int) -> ApiError:
    return ApiError(
        429,
        f"{waiting} requests wait already, the server lets {limit} wait; try again later",
        kind="rate_limit_error",
        code="queue_full",
        reason="overloaded",
        headers={"Retry-After": "1"},
    )


def timed_out(seconds: float) -> ApiError:
    return ApiError(
        504,
        f"the answer took longer than the {seconds:g} s that this server allows",
        kind="server_error",
        code="request_timeout",
        reason="timeout",
    )


def not_ready(message: str, *, close: bool = False) -> ApiError:
    headers = {"Retry-After": "1"} | ({"Connection": "close"} if close else {})
    return ApiError(
        503,
        message,
        kind="server_error",
        code="not_ready",
        reason="unavailable",
        headers=headers,
    )


def engine_failed(message: str) -> ApiError:
    return ApiError(500, message, kind="server_error", code="engine_error", reason="engine")


def api_error(error: Exception) -> ApiError | None:
    """Return the answer for an exception that has one; None for a fault of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ParameterError):
        return bad_request(error.param, str(error), "invalid_value")
    if isinstance(error, ChatTemplateError):
        return bad_request("messages", str(error), "chat_template_error")
    if isinstance(error, (UserError, PluginApiError)):
        return bad_request(None, str(error))
    if isinstance(error, EngineError):
        return engine_failed(str(error))
    return None
