"""The Python API: ``LLM`` in this process, ``AsyncLLM`` beside an engine process."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from infer.config.engine import EngineConfig
from infer.config.errors import EngineError, UserError
from infer.config.plugins import PluginActivation
from infer.engine.core import EngineCore
from infer.engine.input_processor import (
    InputProcessor,
    Prepared,
    Prompt,
    default_sampling_params,
)
from infer.engine.messages import EngineInfo, EngineStats
from infer.engine.output_processor import AnswerStream
from infer.engine.outputs import CompletionOutput, Delta, RequestOutput
from infer.engine.progress import progress_on_terminal
from infer.modeling.files import announce_on_stderr, find_model
from infer.plugins.discovery import load_plugins
from infer.text.chat import load_template
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.sampling import ParameterError, SamplingParams

_PLUGIN_ARGUMENTS = ("plugins", "enable_plugins", "only_plugins", "disable_plugins")
_FIELDS = tuple(field.name for field in dataclasses.fields(EngineConfig) if field.name != "plugins")

Message = Mapping[str, Any]


class LLM:
    """An engine in this process, for scripts and notebooks.

    Keyword arguments are the fields of :class:`~infer.config.engine.EngineConfig` and
    ``plugins``, ``enable_plugins``, ``only_plugins``, ``disable_plugins``. Not thread-safe.
    Raises UserError or ModelError in one line when the model can't be served.
    """

    def __init__(self, model: str = "", **arguments: Any) -> None:
        self._open(config_from(model, arguments))

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        """Make an engine from a configuration that exists already."""
        made = cls.__new__(cls)
        made._open(config)
        return made

    def _open(self, config: EngineConfig) -> None:
        registry = load_plugins(config.plugins)
        files = find_model(config, registry, announce_on_stderr)
        self.tokenizer = Tokenizer.load(files.tokenizer_dir)
        self.chat_template = load_template(
            files.tokenizer_dir, self.tokenizer, config.chat_template
        )
        self._core = EngineCore(config, files, registry, progress_on_terminal())
        self.info: EngineInfo = self._core.info
        self.stats = EngineStats(kv_blocks_total=self.info.num_blocks)
        self.files = files
        self._inputs = InputProcessor(
            self.tokenizer,
            files,
            registry,
            config,
            vocab_size=self.info.vocab_size,
            max_model_len=self.info.max_model_len,
        )
        self._streams: dict[str, AnswerStream] = {}

    def sampling_params(self, **values: Any) -> SamplingParams:
        """Return *values* over what the model recommends. Raises ParameterError."""
        return SamplingParams(**{**default_sampling_params(self.files), **values})

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer prompts, all batched together; results in the order of the prompts.

        One SamplingParams serves all prompts, or give one each; without, the model's own
        recommendations do. A prompt that can't be served
        raises ParameterError naming its index before anything runs.
        """
        listed: list[Any] = [prompts] if _is_one(prompts) else list(prompts)
        chosen = _params_for(listed, self.sampling_params() if params is None else params)
        prepared = []
        for index, (prompt, each) in enumerate(zip(listed, chosen, strict=True)):
            try:
                prepared.append(self._inputs.prepare(prompt, each))
            except ParameterError as error:
                if len(listed) == 1:
                    raise
                reason = str(error).removeprefix(f"{error.param}: ")
                raise ParameterError(error.param, f"prompt {index}: {reason}") from None
        return self._run(prepared)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        **template_values: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several; the model's chat template makes the prompts."""
        one = not messages or isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one else messages
        ids = [self._chat_ids(item, **template_values) for item in conversations]
        return self.generate([{"prompt_token_ids": prompt} for prompt in ids], params)

    def stream(
        self, prompt: Prompt | Sequence[Message], params: SamplingParams | None = None
    ) -> Generator[Delta, None, None]:
        """Yield what is new of the answers to one prompt or one conversation, as it comes.

        Leaving the loop early aborts the request.
        """
        if not isinstance(prompt, (str, Mapping)) and prompt and isinstance(prompt[0], Mapping):
            conversation: Any = prompt
            prompt = {"prompt_token_ids": self._chat_ids(conversation)}
        prepared = self._inputs.prepare(prompt, params or self.sampling_params())  # type: ignore[arg-type]
        self._add(prepared)
        open_ids = {child.request_id for child in prepared.children}
        try:
            while open_ids:
                for request_id, delta in self._step():
                    if request_id in open_ids:
                        yield delta
                        if delta.finish_reason:
                            open_ids.discard(request_id)
        finally:
            self._drop(open_ids)

    def close(self) -> None:
        """End the engine. May be called twice."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _chat_ids(self, messages: Sequence[Message], **values: Any) -> list[int]:
        if self.chat_template is None:
            raise UserError(
                f"{self.files.name} has no chat template; give one with chat_template=, "
                "or use generate()"
            )
        text = self.chat_template.render(messages, **values)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _run(self, prepared: list[Prepared]) -> list[RequestOutput]:
        results = [_empty(item) for item in prepared]
        places = {
            child.request_id: (result, result.outputs[index])
            for item, result in zip(prepared, results, strict=True)
            for index, child in enumerate(item.children)
        }
        for item in prepared:
            self._add(item)
        try:
            while places:
                for request_id, delta in self._step():
                    if (place := places.get(request_id)) is None:
                        continue
                    _grow(*place, delta)
                    if delta.finish_reason:
                        del places[request_id]
        finally:
            self._drop(places)
        return results

    def _add(self, prepared: Prepared) -> None:
        for index, child in enumerate(prepared.children):
            self._streams[child.request_id] = AnswerStream(self.tokenizer, prepared, index)
            self._core.add(child)

    def _step(self) -> Iterator[tuple[str, Delta]]:
        """Run one step of the engine; yield the deltas with their requests' ids."""
        news = self._core.step()
        self.stats = news.stats
        for output in news.outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            if output.error is not None:
                raise EngineError(f"request {output.request_id} failed: {output.error}")
            delta = stream.push(output)
            if stream.finished:
                del self._streams[output.request_id]
            if stream.stopped_here:
                self._core.abort([output.request_id])
            if delta is not None:
                yield output.request_id, delta

    def _drop(self, request_ids: Any) -> None:
        """Forget requests that nobody waits for any more."""
        left = [request_id for request_id in request_ids if request_id in self._streams]
        for request_id in left:
            del self._streams[request_id]
        if left:
            self._core.abort(left)
            while self._core.has_work():
                self._core.step()


class AsyncLLM:
    """An engine in a process of its own, for asyncio programs.

    ``async with AsyncLLM(...) as llm:`` or ``await llm.start()`` first.
    """

    def __init__(self, model: str = "", **arguments: Any) -> None:
        self._config = config_from(model, arguments)
        self._engine: Any = None

    async def start(self) -> Self:
        """Start the engine process and load the model."""
        from infer.engine.async_engine import AsyncEngine

        if self._engine is None:
            self._engine = await AsyncEngine.start(self._config)
        return self

    async def generate(
        self, prompt: Prompt, params: SamplingParams | None = None, request_id: str = ""
    ) -> AsyncIterator[RequestOutput]:
        """Yield the growing output; the last one has ``finished`` set."""
        await self.start()
        result: RequestOutput | None = None
        params = params or SamplingParams(**default_sampling_params(self._engine.files))
        async for prepared, delta in self._engine.stream(prompt, params, request_id):
            result = result or _empty(prepared)
            _grow(result, result.outputs[delta.index], delta)
            yield result

    async def close(self) -> None:
        """End the engine process."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def config_from(model: str, arguments: Mapping[str, Any]) -> EngineConfig:
    """Return the configuration of keyword arguments. Raises TypeError for unknown names."""
    known = (*_FIELDS, *_PLUGIN_ARGUMENTS)
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"LLM() got an unexpected keyword argument {name!r}{hint}")
    fields = {name: value for name, value in arguments.items() if name in _FIELDS}
    plugins = PluginActivation.from_environment().merged(
        enable=arguments.get("enable_plugins") or (),
        only=arguments.get("only_plugins"),
        disable=arguments.get("disable_plugins") or (),
        extra=arguments.get("plugins") or (),
    )
    return EngineConfig(model=model, plugins=plugins, **fields)


def _is_one(prompts: Any) -> bool:
    """Whether this is a single prompt: text, a mapping, or a list of ids."""
    if isinstance(prompts, (str, Mapping)):
        return True
    return bool(prompts) and isinstance(prompts[0], int)


def _params_for(
    prompts: list[Prompt], params: SamplingParams | Sequence[SamplingParams]
) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * len(prompts)
    if len(params) != len(prompts):
        raise ValueError(f"{len(params)} SamplingParams for {len(prompts)} prompts; give one each")
    return list(params)


def _empty(prepared: Prepared) -> RequestOutput:
    outputs = [CompletionOutput(index) for index in range(prepared.params.n)]
    return RequestOutput(prepared.request_id, prepared.text, prepared.prompt_token_ids, outputs)


def _grow(result: RequestOutput, answer: CompletionOutput, delta: Delta) -> None:
    answer.text += delta.text
    answer.token_ids += delta.token_ids
    if delta.logprobs is not None:
        answer.logprobs = (answer.logprobs or []) + delta.logprobs
    answer.finish_reason = delta.finish_reason
    answer.stop_reason = delta.stop_reason
    result.num_cached_tokens = max(result.num_cached_tokens, delta.num_cached_tokens)
    result.finished = all(output.finish_reason for output in result.outputs)
