"""Logits processors that requests name, one instance per request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from infer.sampling.pipeline import Stage, StageRows
from infer_plugin_api.execution import Admission
from infer_plugin_api.sampling import LogitsContext, LogitsProcessor

ProcessorFactory = Callable[[str, LogitsContext], LogitsProcessor]

logger = logging.getLogger(__name__)


@dataclass
class _Row:
    """A request's processors in order. known: length of the token pool's row that was read."""

    request_id: str
    output_ids: list[int]
    known: int
    processors: list[tuple[str, LogitsProcessor]] = field(default_factory=list)


class LogitsProcessors(Stage):
    """Runs them on the host. What one raises becomes its request's error and nobody else's.

    errors: row -> reason, from the failure until the row is released.
    """

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        token_ids: torch.Tensor,
        factory: ProcessorFactory,
    ) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self.errors: dict[int, str] = {}
        self._factory = factory
        self._rows: dict[int, _Row] = {}

    def admit(self, admission: Admission) -> bool:
        if not admission.params.logits_processors:
            return False
        prompt = admission.token_ids[: admission.num_prompt_tokens]
        output = admission.token_ids[admission.num_prompt_tokens :]
        row = _Row(admission.request_id, output, len(admission.token_ids))
        self._rows[admission.row] = row
        context = LogitsContext(
            params=admission.params, prompt_token_ids=prompt, vocab_size=self.vocab_size
        )
        for name in admission.params.logits_processors:
            try:
                row.processors.append((name, self._factory(name, context)))
            except Exception as error:
                self._fail(admission.row, name, f"failed to start: {_text(error)}", error)
                break
        return True

    def release(self, row: int) -> None:
        del self._rows[row]
        self.errors.pop(row, None)

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        for slot, row, position in zip(batch.slots, batch.rows, batch.positions, strict=True):
            if row not in self.errors:
                self._apply_row(logits[slot], row, position)

    def _apply_row(self, logits: torch.Tensor, row: int, position: int) -> None:
        state = self._rows[row]
        state.output_ids += self.token_ids[row, state.known : position].tolist()
        state.known = position
        for name, processor in state.processors:
            try:
                processor.apply(state.output_ids, logits)
            except Exception as error:
                self._fail(row, name, f"failed: {_text(error)}", error)
                return
            if not bool(torch.isfinite(logits).any()):
                self._fail(row, name, "left no token that could be sampled")
                return

    def _fail(self, row: int, name: str, reason: str, error: Exception | None = None) -> None:
        self.errors[row] = f"logits processor {name!r} {reason}"
        logger.warning(
            "request %s: %s", self._rows[row].request_id, self.errors[row], exc_info=error
        )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
