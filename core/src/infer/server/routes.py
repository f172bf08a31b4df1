"""/v1/chat/completions and /v1/completions."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infer.engine.input_processor import Prompt, default_sampling_params
from infer.server.body import read_json
from infer.server.calls import Call
from infer.server.errors import (
    ApiError,
    ClientGoneError,
    api_error,
    bad_request,
    engine_failed,
    model_not_found,
    timed_out,
)
from infer.server.generation import Generation, Job
from infer.server.layers import CALL
from infer.server.parameters import chat_params, completion_params
from infer.server.requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    check_messages,
    check_request,
    prompts_of,
)
from infer.server.responses import Chunk
from infer.server.sse import EventStream
from infer.server.state import ServerState
from infer.server.styles import ChatStyle, CompletionStyle, Style

if TYPE_CHECKING:
    from infer.engine.async_engine import AsyncEngine

log = logging.getLogger(__name__)

R = TypeVar("R", bound=GenerationRequest)
_TEMPLATE_OWN = frozenset({"messages", "tools", "add_generation_prompt"})
_NO_TEMPLATE = (
    "this model has no chat template; start the server with --chat-template FILE, "
    "or use /v1/completions"
)


class GenerationRoute(ABC, Generic[R]):
    """The life of a request, common to both routes."""

    body: type[R]

    def __init__(self, state: ServerState) -> None:
        self.state = state

    @abstractmethod
    def job(self, request: R, engine: AsyncEngine) -> tuple[Job, Style]:
        """Say what the request asks for. Raises ApiError, ChatTemplateError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, call = self.state, scope[CALL]
        assert isinstance(call, Call)
        settings = state.settings
        request = await read_json(scope, receive, settings.max_body_size, self.body)
        engine = state.ready_engine()
        model = _model(request.model, state)
        check_request(request)
        job, style = self.job(request, engine)
        state.check_queue()
        generation = Generation(state, engine, job, call)
        late = timed_out(settings.request_timeout or 0)
        answer = _Answer(generation, style, model, call)
        if not request.stream:
            with call.interruptible(receive, settings.request_timeout, late):
                body = await answer.whole()
            await Response(body, media_type="application/json")(scope, receive, send)
            return
        stream = EventStream(send)
        options = request.stream_options
        try:
            with call.interruptible(receive, settings.request_timeout, late):
                await answer.stream(stream, bool(options and options.include_usage))
        except ClientGoneError:
            raise
        except Exception as error:
            if not stream.begun:
                raise
            await stream.fail(_told(error, call, state))
        else:
            await stream.done()


class ChatRoute(GenerationRoute[ChatRequest]):
    body = ChatRequest

    def job(self, request: ChatRequest, engine: AsyncEngine) -> tuple[Job, Style]:
        messages = check_messages(request.messages)
        defaults = default_sampling_params(engine.files)
        params = chat_params(request, defaults, engine.config.max_logprobs)
        template = engine.chat_template
        if template is None:
            raise bad_request("messages", _NO_TEMPLATE, "no_chat_template")
        extra = request.chat_template_kwargs or {}
        if taken := _TEMPLATE_OWN & set(extra):
            name = f"chat_template_kwargs.{min(taken)}"
            raise bad_request(name, f"{name} can't be set here; it is a field of the request")
        generate = request.add_generation_prompt is not False
        text = template.render(messages, add_generation_prompt=generate, **extra)
        special = bool(request.add_special_tokens)
        return Job([_salted(text, request)], params, special), ChatStyle(params)


class CompletionRoute(GenerationRoute[CompletionRequest]):
    body = CompletionRequest

    def job(self, request: CompletionRequest, engine: AsyncEngine) -> tuple[Job, Style]:
        prompts = [_salted(prompt, request) for prompt in prompts_of(request)]
        defaults = default_sampling_params(engine.files)
        params = completion_params(request, defaults, engine.config.max_logprobs)
        special = request.add_special_tokens is not False
        return Job(prompts, params, special), CompletionStyle(params)


class _Answer:
    """Writes one request's answer in its style."""

    def __init__(self, generation: Generation, style: Style, model: str, call: Call) -> None:
        self._generation = generation
        self._style = style
        self._model = model
        self._id = style.id_prefix + call.unique_id
        self._created = int(time.time())

    async def whole(self) -> bytes:
        """Return the body when all answers have ended."""
        style = self._style
        async with aclosing(self._generation.deltas()) as deltas:
            async for index, delta in deltas:
                style.collect(index, delta)
        usage = self._generation.usage()
        return msgspec.json.encode(style.whole(self._id, self._created, self._model, usage))

    async def stream(self, events: EventStream, include_usage: bool) -> None:
        """Send events as the answers grow, and the usage at the end if it was asked for."""
        style = self._style
        unset = None if include_usage else msgspec.UNSET
        async with aclosing(self._generation.deltas()) as deltas:
            async for index, delta in deltas:
                for choice in style.chunk(index, delta):
                    await events.event(self._chunk([choice], unset))
        if include_usage:
            await events.event(self._chunk([], self._generation.usage()))

    def _chunk(self, choices: list[Any], usage: Any) -> bytes:
        object_name = self._style.chunk_object
        return msgspec.json.encode(
            Chunk(self._id, object_name, self._created, self._model, choices, usage)
        )


def _model(name: str | None, state: ServerState) -> str:
    """Return the name to answer under. Raises ApiError 404 for one that is not served."""
    if not name:
        return state.model_names[0]
    if name not in state.model_names:
        raise model_not_found(name)
    return name


def _salted(prompt: str | list[int], request: GenerationRequest) -> Prompt:
    if not request.cache_salt:
        return prompt
    key = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
    return {key: prompt, "cache_salt": request.cache_salt}


def _told(error: Exception, call: Call, state: ServerState) -> ApiError:
    """Return what a client hears of an error in the middle of its answer."""
    answer = api_error(error)
    if answer is None:
        log.error("%s failed while streaming", call.path, exc_info=error)
        answer = engine_failed("internal error; the server's log has it")
    state.metrics.failed(answer.reason)
    return answer
