"""Events reach listeners beside the engine's loop, and a bad listener harms nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from infer.plugins.events import EventRelay
from infer.plugins.registry import Registry
from infer_plugin_api.events import EngineEvent
from tests.plugin_site import PREAMBLE, Site

pytestmark = pytest.mark.timeout(20)

HOOK = "infer_request_finished"
Warnings = Callable[[], list[str]]


def into(heard: list[int]) -> Callable[..., None]:
    """Return a listener that keeps what it hears."""
    return lambda event: heard.append(event)


def test_events_come_in_order_to_every_listener_on_another_thread() -> None:
    relay = EventRelay()
    first: list[int] = []
    second: list[tuple[int, threading.Thread]] = []
    relay.listen(HOOK, "a", into(first))
    relay.listen(HOOK, "b", lambda event: second.append((event, threading.current_thread())))
    for number in range(500):
        relay.emit(HOOK, number)
    relay.close()
    assert first == list(range(500))
    assert [number for number, _ in second] == first
    assert {thread for _, thread in second}.isdisjoint({threading.current_thread()})


def test_without_listeners_no_thread_is_started() -> None:
    relay = EventRelay()
    before = threading.active_count()
    relay.emit(HOOK, 1)
    assert not relay.listens(HOOK)
    assert threading.active_count() == before
    relay.close()


def test_emit_never_waits_and_what_does_not_fit_is_counted(warnings: Warnings) -> None:
    relay = EventRelay(capacity=3)
    enter, leave = threading.Event(), threading.Event()

    def slow(event: int) -> None:
        enter.set()
        leave.wait(10)

    relay.listen(HOOK, "slow", slow)
    relay.emit(HOOK, 0)
    assert enter.wait(5)
    for number in range(10):
        relay.emit(HOOK, number)
    assert relay.dropped == 7
    leave.set()
    relay.close()
    assert warnings() == ["7 events did not reach their listeners, which were too slow"]


def test_close_does_not_wait_for_a_listener_that_hangs(warnings: Warnings) -> None:
    relay = EventRelay(capacity=1)
    leave = threading.Event()
    relay.listen(HOOK, "hangs", lambda event: leave.wait(15))
    for number in range(5):
        relay.emit(HOOK, number)
    began = time.monotonic()
    relay.close(timeout=0.2)
    assert time.monotonic() - began < 5
    assert len(warnings()) == 1
    leave.set()


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit("bye")])
def test_a_listener_that_raises_five_times_is_told_nothing_more(
    warnings: Warnings, error: BaseException
) -> None:
    relay = EventRelay()
    calls: list[int] = []
    heard: list[int] = []

    def broken(event: int) -> None:
        calls.append(event)
        raise error

    relay.listen(HOOK, "broken", broken)
    relay.listen(HOOK, "sound", into(heard))
    relay.listen("infer_engine_stopped", "broken", into(heard))
    for number in range(8):
        relay.emit(HOOK, number)
    relay.emit("infer_engine_stopped", -1)
    relay.close()
    assert calls == [0, 1, 2, 3, 4]
    assert heard == [*range(8), -1]
    lines = warnings()
    assert len(lines) == 6
    assert all(line.startswith(f"plugin 'broken' failed in {HOOK}") for line in lines[:5])
    assert lines[5] == f"plugin 'broken' is no longer told of {HOOK} after 5 errors"


def test_a_hook_whose_last_listener_was_disabled_has_no_listeners() -> None:
    relay = EventRelay()
    relay.listen(HOOK, "broken", lambda event: 1 / 0)
    for number in range(6):
        relay.emit(HOOK, number)
    relay.close()
    assert not relay.listens(HOOK)


def test_after_close_events_are_ignored_and_close_may_come_again() -> None:
    relay = EventRelay()
    heard: list[int] = []
    relay.listen(HOOK, "a", into(heard))
    relay.emit(HOOK, 1)
    relay.close()
    relay.emit(HOOK, 2)
    relay.close()
    assert heard == [1]


def test_a_plugins_hook_is_called_with_the_arguments_that_it_takes(
    site: Site, load: Callable[..., Registry]
) -> None:
    module = site.install(
        "ear",
        PREAMBLE
        + "heard = []\n"
        + "@hookimpl\ndef infer_engine_started(event):\n    heard.append(event.model)\n"
        + "@hookimpl\ndef infer_engine_stopped():\n    heard.append('stopped')\n",
    )
    relay = load().events
    relay.emit("infer_engine_started", EngineEvent(model="m", detail={}))
    relay.emit("infer_engine_stopped", EngineEvent(model="m", detail={}))
    relay.close()
    assert __import__(module).heard == ["m", "stopped"]
