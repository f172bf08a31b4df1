"""The layers around the routes: keys, names, readiness, and the log of what happened."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from infer.server.app import build_app
from infer.server.errors import unauthorized
from infer.server.layers import CallLayer, KeyLayer
from infer.server.settings import ServerSettings
from infer.server.state import Phase, ServerState

KEY = "sk-secret"


def answer(
    app: Any, path: str, method: str = "GET", content: bytes = b"", **headers: str
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, path, headers=sent, content=content)

    return asyncio.run(ask())


def starting(**settings: Any) -> tuple[Any, ServerState]:
    state = ServerState(ServerSettings(**settings))
    return build_app(state), state


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "//v1/models",
        "/v1/../v1/models",
        "/V1/MODELS",
        "/v1/chat/completions",
        "/v1/%6dodels",
        "/metrics",
        "/",
        "/health/",
        "//health",
        "/Health",
        "/ready/x",
        "/docs",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_without_a_key_only_exact_paths_answer(path: str, method: str) -> None:
    app, _ = starting(api_keys=(KEY,))
    assert answer(app, path, method).status_code == 401


def test_state_routes_answer_without_a_key() -> None:
    app, _ = starting(api_keys=(KEY,))
    assert answer(app, "/version").status_code == 200
    assert answer(app, "/health").status_code == 503
    assert answer(app, "/ready").status_code == 503


def test_metrics_are_public_only_on_demand() -> None:
    app, _ = starting(api_keys=(KEY,), public_metrics=True)
    assert answer(app, "/metrics").status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 503),
        ("Bearer other", 503),
        (f"bearer  {KEY} ", 503),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        ("Bearer", 401),
        ("Bearer sk-secre", 401),
        ("Bearer sk-secret2", 401),
    ],
)
def test_any_of_the_keys_opens_and_nothing_else_does(header: str, status: int) -> None:
    app, _ = starting(api_keys=(KEY, "other"))
    response = answer(app, "/v1/models", authorization=header)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_the_key_layer_keeps_no_key() -> None:
    layer = KeyLayer(lambda *_: None, (KEY,), frozenset())  # type: ignore[arg-type,return-value]
    assert KEY.encode() not in b"".join(layer.digests)
    assert KEY not in repr(vars(layer))


def test_nothing_but_the_state_is_answered_before_the_model_is_loaded() -> None:
    app, _ = starting()
    for path in ("/v1/models", "/v1/completions", "/nothing"):
        response = answer(app, path)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
    assert answer(app, "/metrics").status_code == 200


def test_while_draining_the_engine_is_alive_but_takes_nothing() -> None:
    app, state = starting()
    state.phase = Phase.DRAINING
    assert answer(app, "/health").status_code == 200
    assert answer(app, "/ready").status_code == 503
    response = answer(app, "/v1/completions", "POST")
    assert (response.status_code, response.headers["connection"]) == (503, "close")


def test_a_dead_engine_is_not_healthy() -> None:
    app, state = starting()
    state.phase, state.failure = Phase.DEAD, "killed"
    response = answer(app, "/health")
    assert response.status_code == 503
    assert "killed" in response.json()["error"]["message"]


def test_unknown_paths_and_methods_are_errors_in_openais_shape() -> None:
    app, state = starting()
    state.phase = Phase.RUNNING
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
    ):
        response = answer(app, path, method)
        assert response.status_code == status
        assert response.json()["error"]["message"]
    assert response.headers["allow"]


@pytest.mark.parametrize(
    ("given", "kept"), [("mine-1", True), ("a b", False), ("x" * 129, False), ("é", False)]
)
def test_the_clients_request_id_comes_back_if_it_is_a_plain_word(given: str, kept: bool) -> None:
    app, _ = starting()

    async def ask() -> str:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await client.get("/version", headers={"X-Request-Id": given.encode()})
            return response.headers["x-request-id"]

    echoed = asyncio.run(ask())
    assert echoed
    assert (echoed == given) is kept


def test_a_web_page_may_ask_only_from_an_allowed_origin() -> None:
    app, _ = starting(api_keys=(KEY,), allowed_origins=("https://mine.example",))
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "x"}
    good = answer(app, "/v1/models", "OPTIONS", origin="https://mine.example", **asked)
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == "https://mine.example"
    bad = answer(app, "/v1/models", "OPTIONS", origin="https://evil.example", **asked)
    assert "access-control-allow-origin" not in bad.headers
    refused = answer(app, "/v1/models", origin="https://mine.example")
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://mine.example"


def test_a_fault_of_ours_is_a_500_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret detail")

    state = ServerState(ServerSettings())
    response = answer(CallLayer(broken, state), "/v1/models", "POST")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "secret detail" in caplog.text
    assert b'infer_request_failure_total{reason="engine"} 1.0' in state.metrics.exposition()


def test_the_access_log_names_the_call_but_none_of_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, state = starting()
    state.phase = Phase.RUNNING
    caplog.set_level(logging.INFO, "infer.access")
    answer(app, "/v1/completions", "POST", b'{"prompt": "my secret", "n": "x"}', x_request_id="r7")
    (record,) = caplog.records
    fields = vars(record)
    assert (fields["method"], fields["path"], fields["status"]) == ("POST", "/v1/completions", 400)
    assert fields["request_id"] == "r7"
    assert "secret" not in str(fields)


def test_errors_tell_their_headers() -> None:
    assert unauthorized().headers == {"WWW-Authenticate": "Bearer"}
