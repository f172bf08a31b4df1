"""EngineCore on a real model: news in order, aborts at any time, failures that name the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infer.config.engine import EngineConfig
from infer.config.errors import EngineError, UserError
from infer.engine.core import EngineCore
from infer.engine.messages import EngineRequest, TokenOutput
from infer.execution.runner import ModelRunner
from infer.modeling.files import find_model
from infer.plugins.discovery import load_plugins
from infer_plugin_api.sampling import SamplingParams

Config = Callable[..., EngineConfig]
ALPHABET = ["ABC", " DEF", " G", "HI", " J", "KLM", " NOP"]


def make(config: EngineConfig) -> EngineCore:
    registry = load_plugins(config.plugins)
    return EngineCore(config, find_model(config, registry, lambda line: None), registry)


@pytest.fixture
def core(small: Config) -> Iterator[EngineCore]:
    engine = make(small("loop", max_model_len=64))
    yield engine
    engine.close()


def request(name: str, prompt: str = "go", **params: object) -> EngineRequest:
    values = {"temperature": 0, "max_tokens": 4} | params
    return EngineRequest(name, list(prompt.encode()), SamplingParams(**values), 0, (256,))  # type: ignore[arg-type]


def drain(core: EngineCore) -> list[TokenOutput]:
    """Step until nothing is left; every request ends within the steps it may take."""
    found = []
    for _ in range(500):
        if not core.has_work():
            return found
        found += core.step().outputs
    raise AssertionError("the engine does not come to an end")


def of(news: list[TokenOutput], name: str) -> list[TokenOutput]:
    return [output for output in news if output.request_id == name]


def test_news_say_when_it_began_what_was_sampled_and_how_it_ended(core: EngineCore) -> None:
    core.add(request("a"))
    news = of(drain(core), "a")
    assert sum(len(output.token_ids) for output in news) == 4
    assert [output.finish_reason for output in news][-1] == "length"
    assert all(output.finish_reason is None for output in news[:-1])
    assert news[0].first_scheduled > 0
    assert all(output.first_scheduled == 0 for output in news[1:])


def test_a_request_that_can_never_fit_is_answered_with_the_reason(core: EngineCore) -> None:
    core.add(request("long", "x" * 64))
    core.add(request("short"))
    news = drain(core)
    (refused,) = of(news, "long")
    assert refused.finish_reason == "error"
    assert refused.error
    assert "64" in refused.error
    assert of(news, "short")[-1].finish_reason == "length"


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_request_may_be_aborted_at_any_time(core: EngineCore, steps: int) -> None:
    core.add(request("a", max_tokens=50))
    core.add(request("b"))
    news = [output for _ in range(steps) for output in core.step().outputs]
    core.abort(["a", "a", "nobody"])
    news += drain(core)
    assert of(news, "a")[-1].finish_reason == "abort"
    assert of(news, "b")[-1].finish_reason == "length"
    assert core.step().stats.kv_blocks_used == 0
    core.abort(["a"])
    assert not core.has_work(), "a finished request can't be aborted again"


def test_an_idle_engine_holds_nothing(core: EngineCore) -> None:
    for name in "abc":
        core.add(request(name))
    drain(core)
    stats = core.step().stats
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)
    assert stats.steps > 0


def test_a_failed_step_names_itself_and_its_cause(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(runner: ModelRunner, plan: object) -> None:
        raise RuntimeError("no more electricity")

    monkeypatch.setattr(ModelRunner, "forward", broken)
    core.add(request("a"))
    with pytest.raises(EngineError, match="step 1 failed: RuntimeError: no more electricity"):
        drain(core)


def test_a_pool_too_small_for_the_asked_length_ends_the_start(small: Config) -> None:
    with pytest.raises(UserError, match="--kv-cache-memory-bytes"):
        make(small("loop", kv_cache_memory_bytes=1, max_model_len=64))


def test_close_may_be_called_twice(small: Config) -> None:
    engine = make(small("alphabet"))
    engine.close()
    engine.close()
