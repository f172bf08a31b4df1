"""Logs: one handler on stderr, as text for people or as JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from infer.config.errors import UserError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup(level: str = "info", style: str = "text") -> None:
    """Send all logs to stderr. May be called again; the last call counts.

    Records of other libraries are shown from warnings on. Raises UserError for unknown words.
    """
    if level not in LEVELS:
        raise UserError(f"--log-level {level!r} is not known; choose one of {', '.join(LEVELS)}")
    if style not in FORMATS:
        raise UserError(f"--log-format {style!r} is not known; choose one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("infer").setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """``12:00:00 WARNING infer.server: message key=value``; fields of ``extra`` follow."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        fields = "".join(f" {name}={_one_word(value)}" for name, value in _extra(record).items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _one_word(value: Any) -> str:
    """Quote what could be taken for another field or another line."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)
