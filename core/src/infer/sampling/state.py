"""Sampling over permanent rows: what a worker keeps of every request, and one step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from infer.sampling.logprobs import LogprobTensors, RawLogprobs
from infer.sampling.masks import BadWords, MinTokens
from infer.sampling.parameters import RowParameters
from infer.sampling.penalties import LogitBias, OutputPenalties, RepetitionPenalty
from infer.sampling.pipeline import Stage, StageRows
from infer.sampling.processors import LogitsProcessors, ProcessorFactory
from infer_plugin_api.execution import Admission
from infer_plugin_api.sampling import Sampler


@dataclass(frozen=True)
class SampleOutput:
    """What one step sampled. token_ids: int64 [S] on the device.

    errors: row -> reason, for rows whose request failed; their tokens mean nothing.
    """

    token_ids: torch.Tensor
    logprobs: LogprobTensors | None = None
    errors: dict[int, str] = field(default_factory=dict)


class SamplingState:
    """Sampling parameters of up to *max_rows* requests, and the way from logits to token ids.

    token_ids: int [max_rows, length], the worker's token pool. Before ``sample`` is called for a
    position, the row's ids at all earlier positions must stand there, sampled ones too.
    greedy: the ``greedy_sample`` op, used alone when all rows of a step are greedy.

    Order: log-probabilities are taken, then repetition, presence and frequency penalties,
    logit_bias, logits processors, min_tokens and bad_words masks, then the sampler. Rows never
    influence each other.
    """

    def __init__(
        self,
        *,
        max_rows: int,
        vocab_size: int,
        token_ids: torch.Tensor,
        sampler: Sampler,
        greedy: Callable[[torch.Tensor], torch.Tensor],
        processors: ProcessorFactory,
    ) -> None:
        self._sampler = sampler
        self._greedy = greedy
        self._parameters = RowParameters(max_rows, vocab_size, token_ids.device)
        self._processors = LogitsProcessors(max_rows, vocab_size, token_ids, processors)
        self._stages: tuple[Stage, ...] = (
            RepetitionPenalty(max_rows, vocab_size, token_ids),
            OutputPenalties(max_rows, vocab_size, token_ids),
            LogitBias(max_rows, vocab_size, token_ids),
            self._processors,
            MinTokens(max_rows, vocab_size, token_ids),
            BadWords(max_rows, vocab_size, token_ids),
        )
        self._members: tuple[set[int], ...] = tuple(set() for _ in self._stages)
        self._logprobs: dict[int, int] = {}
        self._prompt_lengths = [0] * max_rows

    def admit(self, admission: Admission) -> None:
        """Give a free row to a request. A logits processor that can't start fails the request."""
        row = admission.row
        self._prompt_lengths[row] = admission.num_prompt_tokens
        self._parameters.admit(admission)
        for stage, members in zip(self._stages, self._members, strict=True):
            if stage.admit(admission):
                members.add(row)
        if admission.params.logprobs is not None:
            self._logprobs[row] = admission.params.logprobs

    def release(self, row: int) -> None:
        """Free a row."""
        for stage, members in zip(self._stages, self._members, strict=True):
            if row in members:
                members.remove(row)
                stage.release(row)
        self._logprobs.pop(row, None)

    def sample(self, logits: torch.Tensor, rows: list[int], positions: list[int]) -> SampleOutput:
        """Draw one token per row from float32 logits [S, vocab], which may be overwritten.

        positions: index of each token to be drawn, that is the number of tokens before it.
        """
        raw = self._raw_logprobs(logits, rows)
        self._run_stages(logits, rows, positions)
        if self._parameters.all_greedy(rows):
            tokens = self._greedy(logits)
        else:
            tokens = self._sampler.sample(logits, self._parameters.batch(rows, positions))
        errors = self._processors.errors
        return SampleOutput(
            token_ids=tokens,
            logprobs=None if raw is None else raw.of(tokens),
            errors={row: errors[row] for row in rows if row in errors} if errors else {},
        )

    def _raw_logprobs(self, logits: torch.Tensor, rows: list[int]) -> RawLogprobs | None:
        if not self._logprobs:
            return None
        slots = [slot for slot, row in enumerate(rows) if row in self._logprobs]
        if not slots:
            return None
        return RawLogprobs(logits, slots, [self._logprobs[rows[slot]] for slot in slots])

    def _run_stages(self, logits: torch.Tensor, rows: list[int], positions: list[int]) -> None:
        for stage, members in zip(self._stages, self._members, strict=True):
            if not members:
                continue
            slots = [slot for slot, row in enumerate(rows) if row in members]
            if slots:
                chosen = [rows[slot] for slot in slots]
                stage.apply(
                    logits,
                    StageRows(
                        slots=slots,
                        rows=chosen,
                        positions=[positions[slot] for slot in slots],
                        prompt_lengths=[self._prompt_lengths[row] for row in chosen],
                    ),
                )
