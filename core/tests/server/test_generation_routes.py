"""The routes over a scripted engine: what no real engine does on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from infer.config.errors import EngineError
from infer.engine.outputs import Delta
from infer.server.app import build_app
from infer.server.settings import ServerSettings
from infer.server.state import Phase, ServerState

PATH = "/v1/completions"


def delta(text: str, count: int = 1, reason: str | None = None, index: int = 0) -> Delta:
    return Delta(
        index,
        text,
        [1],
        finish_reason=reason,
        num_prompt_tokens=5,
        num_cached_tokens=2,
        num_output_tokens=count,
    )


@dataclass
class ScriptedEngine:
    """Answers every prompt with *script*; an exception in it is raised; ... waits for ever."""

    script: Sequence[Any]
    stats: Any = field(default_factory=lambda: SimpleNamespace(waiting=0))
    closed: int = 0
    info: Any = field(default_factory=lambda: SimpleNamespace(max_num_seqs=4, max_model_len=64))
    files: Any = field(default_factory=lambda: SimpleNamespace(generation_config={}))
    config: Any = field(default_factory=lambda: SimpleNamespace(max_logprobs=20))
    chat_template: Any = None

    async def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
        try:
            for item in self.script:
                await asyncio.sleep(0)
                if isinstance(item, Exception):
                    raise item
                if item is ...:
                    await asyncio.Event().wait()
                yield item
        finally:
            self.closed += 1


@dataclass
class Answer:
    """What the application sent."""

    messages: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"]) if self.messages else 0

    @property
    def body(self) -> str:
        return b"".join(m.get("body", b"") for m in self.messages).decode()

    @property
    def complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", False)


def server(*script: Any, **settings: Any) -> tuple[ServerState, ScriptedEngine]:
    engine = ScriptedEngine(script)
    state = ServerState(ServerSettings(**settings), phase=Phase.RUNNING, model_names=("m",))
    state.engine = engine  # type: ignore[assignment]
    return state, engine


async def call(
    state: ServerState, body: dict[str, Any], leave_after: float | None = None
) -> Answer:
    """Run one request; the client leaves after that many seconds, or stays."""
    answer = Answer()
    parts = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Message:
        if parts:
            return parts.pop()
        await (asyncio.Event().wait() if leave_after is None else asyncio.sleep(leave_after))
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answer.messages.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
    await asyncio.wait_for(build_app(state)(scope, receive, send), 10)
    return answer


def ask(state: ServerState, **body: Any) -> Answer:
    return asyncio.run(call(state, {"prompt": "x", **body}))


def data_of(answer: Answer) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.body.split("\n") if "data: " in line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_an_error_before_the_first_byte_has_a_status() -> None:
    for stream in (True, False):
        state, engine = server(EngineError("out of order"))
        answer = ask(state, stream=stream)
        assert answer.status == 500
        assert json.loads(answer.body)["error"]["message"] == "out of order"
        assert engine.closed == 1
        assert state.answers_open == 0


def test_an_error_after_the_first_byte_is_an_event_and_no_done() -> None:
    state, _ = server(delta("a"), EngineError("out of order"))
    answer = ask(state, stream=True)
    assert answer.status == 200
    assert answer.complete
    assert "event: error\n" in answer.body
    first, error = data_of(answer)
    assert first["choices"][0]["text"] == "a"
    assert error["error"]["message"] == "out of order"
    assert "[DONE]" not in answer.body


def test_a_fault_of_ours_in_a_stream_tells_no_details(caplog: pytest.LogCaptureFixture) -> None:
    state, _ = server(delta("a"), RuntimeError("secret"))
    answer = ask(state, stream=True)
    assert "secret" not in answer.body
    assert "secret" in caplog.text
    assert data_of(answer)[-1]["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_every_prompts_answer(stream: bool) -> None:
    state, engine = server(delta("a"), ...)
    body = {"prompt": ["x", "y", "z"], "stream": stream}
    answer = asyncio.run(call(state, body, leave_after=0.05))
    assert not answer.complete
    assert engine.closed == 3
    assert (state.answers_open, len(state.calls)) == (0, 0)
    assert 'failure_total{reason="disconnected"} 1.0' in state.metrics.exposition().decode()


def test_the_first_error_ends_the_answers_of_all_prompts() -> None:
    state, engine = server(delta("a"), EngineError("broken"))
    assert ask(state, prompt=["x", "y", "z"]).status == 500
    assert engine.closed == 3


def test_an_answer_that_takes_too_long_is_a_504_or_an_event() -> None:
    state, _ = server(..., request_timeout=0.05)
    assert ask(state).status == 504
    state, _ = server(delta("a"), ..., request_timeout=0.05)
    answer = ask(state, stream=True)
    assert data_of(answer)[-1]["error"]["code"] == "request_timeout"


def test_a_full_queue_is_a_429() -> None:
    state, engine = server(delta("a", 1, "stop"), max_queue=3)
    engine.stats.waiting = 3
    answer = ask(state)
    assert answer.status == 429
    assert (b"retry-after", b"1") in answer.messages[0]["headers"]
    engine.stats.waiting = 2
    assert ask(state).status == 200


def test_answers_that_the_engine_has_not_seen_yet_count_as_waiting() -> None:
    state, _ = server(delta("a", 1, "stop"), max_queue=3)
    state.answers_open = 7
    assert ask(state).status == 429
    state.answers_open = 6
    assert ask(state).status == 200


def test_usage_counts_prompts_once_and_answers_each() -> None:
    answers = [delta("a", 1), delta("b", 4, "stop"), delta("c", 9, "length", index=1)]
    state, _ = server(*answers)
    usage = json.loads(ask(state, prompt=["x", "y"], n=2).body)["usage"]
    assert usage == {
        "prompt_tokens": 10,
        "completion_tokens": 26,
        "total_tokens": 36,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_a_delta_that_shows_nothing_sends_nothing() -> None:
    state, _ = server(delta(""), delta("ab"), delta("", 2, "stop"))
    *chunks, done = data_of(ask(state, stream=True))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["ab", ""]
    assert done == "[DONE]"
