"""Stop strings: found wherever they are cut, nothing shown twice, nothing kept back at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer.text.stop import StopStrings

ALPHABET = "ABCDEFGHIJKLMNOP"


def streamed(
    pieces: Iterable[str], stops: Sequence[str], *, include: bool = False
) -> tuple[str, str | None]:
    """Return (the text that was shown, the stop string that ended it)."""
    watcher, shown = StopStrings(stops, include=include), ""
    for piece in pieces:
        text, stop = watcher.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + watcher.flush(), None


def expected(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The definition: the string that is complete first, the longest of those ending together."""
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


@pytest.mark.parametrize(("stop", "tokens"), [("NOPQ", 16), ("EFX", 6)])
def test_text_held_back_for_a_stop_that_never_comes_is_shown_at_the_end(
    stop: str, tokens: int
) -> None:
    """API-03"""
    assert streamed(ALPHABET[:tokens], [stop]) == (ALPHABET[:tokens], None)


@pytest.mark.parametrize(
    ("stops", "shown"), [([""], ALPHABET), (["", "K"], "ABCDEFGHIJ"), ([], ALPHABET)]
)
def test_an_empty_stop_string_stops_nothing(stops: list[str], shown: str) -> None:
    """API-13"""
    assert streamed(ALPHABET, stops)[0] == shown


def test_text_before_the_minimum_is_never_part_of_a_match() -> None:
    """API-19: with min_tokens 4 or 5, DEF lies across the border."""
    for minimum, found in ((4, ("ABC", "DEF")), (5, (ALPHABET, None))):
        watcher, shown, stop = StopStrings(["DEF"]), "", None
        for count, character in enumerate(ALPHABET, 1):
            text, stop = watcher.push(character, may_stop=count >= minimum)
            shown += text
            if stop:
                break
        assert (shown + ("" if stop else watcher.flush()), stop) == found


@given(
    text=st.text(alphabet="abc", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4),
    data=st.data(),
)
def test_the_result_does_not_depend_on_how_the_text_is_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert streamed(pieces, stops) == expected(text, stops)


@given(
    text=st.text(alphabet="ab", max_size=30),
    stop=st.text(alphabet="ab", min_size=1, max_size=6),
)
def test_no_more_is_held_back_than_may_be_a_stop(text: str, stop: str) -> None:
    watcher, shown = StopStrings([stop]), ""
    for end, character in enumerate(text, 1):
        piece, found = watcher.push(character)
        if found:
            return
        shown += piece
        held = text[len(shown) : end]
        assert stop.startswith(held)
        assert held != stop


def test_of_strings_that_end_together_the_longest_is_cut_off() -> None:
    assert streamed("abcd", ["cd", "bcd"]) == ("a", "bcd")


def test_the_stop_string_is_shown_when_asked_for() -> None:
    assert streamed("one. two. three", [". "], include=True) == ("one. ", ". ")


def test_what_follows_a_flush_is_watched_as_a_new_text() -> None:
    watcher = StopStrings(["ab"])
    assert watcher.push("a") == ("", None)
    assert watcher.flush() == "a"
    assert watcher.push("b") == ("b", None)


@pytest.mark.timeout(30)
def test_long_stop_strings_do_not_make_tokens_slower() -> None:
    stops = ["a" * 20_000 + end for end in "bcde"]
    started = time.perf_counter()
    assert streamed(["aaaa"] * 4000, stops) == ("aaaa" * 4000, None)
    assert time.perf_counter() - started < 5
