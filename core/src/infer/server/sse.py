"""Server-sent events. The answer begins with the first event: until then errors have a status."""

from __future__ import annotations

from starlette.types import Send

from infer.server.errors import ApiError

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Writes one answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def event(self, data: bytes) -> None:
        """Send one event with the JSON text *data*."""
        if not self.begun:
            self.begun = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
            )
        await self._body(b"data: " + data + b"\n\n", more=True)

    async def fail(self, error: ApiError) -> None:
        """End the answer with an error event instead of ``[DONE]``."""
        await self._body(b"event: error\ndata: " + error.body() + b"\n\n", more=False)

    async def done(self) -> None:
        """End the answer."""
        await self._body(b"data: [DONE]\n\n", more=False)

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
