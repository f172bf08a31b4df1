"""What the operator said about the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass

from infer.config.errors import UserError

DEFAULT_MAX_BODY = 32 << 20
DEFAULT_MAX_QUEUE = 1024
_MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server. Sizes in bytes, times in seconds.

    uds: path of a Unix socket; replaces host and port.
    api_keys: any of them opens the routes; none means that everybody may ask.
    public_metrics: /metrics answers without a key. allowed_origins: for browsers; ``*`` is all.
    max_queue: answers that may wait; more get 429. request_timeout: None means no limit.
    drain_timeout: how long open requests may go on after the first signal.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    api_keys: tuple[str, ...] = ()
    public_metrics: bool = False
    allowed_origins: tuple[str, ...] = ()
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    max_queue: int = DEFAULT_MAX_QUEUE
    max_body_size: int = DEFAULT_MAX_BODY
    request_timeout: float | None = None
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MAX_PORT:
            raise UserError(f"--port {self.port} must be between 0 (any free one) and {_MAX_PORT}")
        if any(not key for key in self.api_keys):
            raise UserError("an API key is empty; give --api-key or INFER_API_KEY a value")
        if bool(self.ssl_keyfile) != bool(self.ssl_certfile):
            raise UserError("--ssl-keyfile and --ssl-certfile belong together; give both")
        for flag, value, least in (
            ("max-queue", self.max_queue, 1),
            ("max-body-size", self.max_body_size, 1),
            ("drain-timeout", self.drain_timeout, 0),
        ):
            if value < least:
                raise UserError(f"--{flag} {value} must be at least {least}")
        if self.request_timeout is not None and self.request_timeout <= 0:
            raise UserError(f"--request-timeout {self.request_timeout} must be above 0")
