"""The application: routes, and the layers around them."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from infer.server.errors import ApiError, model_not_found
from infer.server.layers import METRICS_PATH, OPEN_PATHS, CallLayer, KeyLayer, ReadyLayer
from infer.server.routes import ChatRoute, CompletionRoute
from infer.server.state import Phase, ServerState
from infer.telemetry.metrics import CONTENT_TYPE
from infer.version import infer_version

_ALIVE = (Phase.RUNNING, Phase.DRAINING)


def build_app(state: ServerState) -> ASGIApp:
    """Return the ASGI application of *state*."""
    settings = state.settings
    app: ASGIApp = _Routes(state)
    app = ReadyLayer(app, state)
    if settings.api_keys:
        open_paths = OPEN_PATHS | ({METRICS_PATH} if settings.public_metrics else frozenset())
        app = KeyLayer(app, settings.api_keys, open_paths)
    app = CallLayer(app, state)
    if settings.allowed_origins:
        # Outside the key layer: browsers send no key when they ask whether they may.
        app = CORSMiddleware(
            app,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id"],
        )
    return app


class _Routes:
    """The router; what it does not know is an error like any other."""

    def __init__(self, state: ServerState) -> None:
        state_routes = _StateRoutes(state)
        self.router = Router(
            [
                Route("/v1/chat/completions", ChatRoute(state), methods=["POST"]),
                Route("/v1/completions", CompletionRoute(state), methods=["POST"]),
                Route("/v1/models", state_routes.models, methods=["GET"]),
                Route("/v1/models/{name:path}", state_routes.model, methods=["GET"]),
                Route("/health", state_routes.health, methods=["GET"]),
                Route("/ready", state_routes.ready, methods=["GET"]),
                Route("/version", state_routes.version, methods=["GET"]),
                Route(METRICS_PATH, state_routes.metrics, methods=["GET"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With an "app" in the scope the router raises instead of answering in plain text.
        scope.setdefault("app", self)
        try:
            await self.router(scope, receive, send)
        except HTTPException as error:
            what = f"{scope['method']} {scope['path'][:200]}: {error.detail}"
            reason = "not_found" if error.status_code == 404 else "invalid"
            raise ApiError(error.status_code, what, reason=reason, headers=error.headers) from error


class _Model(msgspec.Struct):
    id: str
    created: int
    max_model_len: int
    object: str = "model"
    owned_by: str = "infer"


class _ModelList(msgspec.Struct):
    data: list[_Model]
    object: str = "list"


class _StateRoutes:
    """What the server says of itself."""

    def __init__(self, state: ServerState) -> None:
        self.state = state

    async def models(self, request: Request) -> Response:
        return _json(_ModelList([self._model(name) for name in self.state.model_names]))

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.state.model_names:
            raise model_not_found(name)
        return _json(self._model(name))

    async def health(self, request: Request) -> Response:
        """200 while the engine is alive."""
        if self.state.phase not in _ALIVE:
            raise self.state.refusal()
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 while requests are accepted."""
        self.state.ready_engine()
        return _json({"status": "ready"})

    async def version(self, request: Request) -> Response:
        return _json({"version": infer_version()})

    async def metrics(self, request: Request) -> Response:
        return Response(self.state.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    def _model(self, name: str) -> _Model:
        engine = self.state.ready_engine()
        return _Model(name, self.state.created, engine.info.max_model_len)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
