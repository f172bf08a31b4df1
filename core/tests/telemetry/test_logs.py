"""Log lines for people and for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from infer.config.errors import UserError
from infer.telemetry import logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("infer")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


def test_json_lines_carry_the_fields_of_extra(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "json")
    logging.getLogger("infer.access").info("done %d", 3, extra={"status": 200, "path": "/é\n"})
    entry = json.loads(capsys.readouterr().err)
    assert entry["message"] == "done 3"
    assert (entry["level"], entry["logger"]) == ("info", "infer.access")
    assert (entry["status"], entry["path"]) == (200, "/é\n")
    assert entry["time"].endswith("Z")


def test_json_lines_carry_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "json")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("infer").exception("failed")
    assert "ValueError: broken" in json.loads(capsys.readouterr().err)["exception"]


def test_a_text_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "text")
    logging.getLogger("infer.access").info("request", extra={"path": "/a\nINFO faked", "ms": 1.5})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("ms=1.5")


def test_the_level_holds_for_infer_and_others_are_heard_from_warnings_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.setup("debug")
    logging.getLogger("infer.x").debug("ours")
    logging.getLogger("uvicorn.error").info("theirs")
    logging.getLogger("uvicorn.error").warning("their warning")
    error = capsys.readouterr().err
    assert "ours" in error
    assert "their warning" in error
    assert "theirs" not in error


@pytest.mark.parametrize("words", [("loud", "text"), ("info", "xml")])
def test_unknown_words_are_refused(words: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="choose one of"):
        logs.setup(*words)
