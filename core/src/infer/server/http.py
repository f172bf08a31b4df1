"""uvicorn, set up for this server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from infer.server.app import build_app
from infer.server.state import ServerState

_KEEP_ALIVE_SECONDS = 30
_GRACE_SECONDS = 2
_MAX_HEADER_BYTES = 64 << 10


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling: signals begin with the drain, which is ours."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def http_server(state: ServerState) -> HttpServer:
    """Return a server for ``serve(sockets=…)``; setting ``should_exit`` ends it."""
    config = uvicorn.Config(
        build_app(state),
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        ssl_keyfile=state.settings.ssl_keyfile,
        ssl_certfile=state.settings.ssl_certfile,
    )
    return HttpServer(config)
