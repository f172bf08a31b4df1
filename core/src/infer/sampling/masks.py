"""Masks: tokens that must not come now."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infer.sampling.pipeline import Stage, StageRows
from infer_plugin_api.execution import Admission


class MinTokens(Stage):
    """Masks the ids that would end a request before it has generated ``min_tokens``."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self._stops: dict[int, tuple[int, torch.Tensor]] = {}

    def admit(self, admission: Admission) -> bool:
        least = admission.params.min_tokens
        ids = self._valid(admission.stop_ids) if least else []
        if ids:
            self._stops[admission.row] = least, self._device(ids)
        return bool(ids)

    def release(self, row: int) -> None:
        del self._stops[row]

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        for slot, row, position, prompt in zip(
            batch.slots, batch.rows, batch.positions, batch.prompt_lengths, strict=True
        ):
            least, ids = self._stops[row]
            if position - prompt < least:
                logits[slot].index_fill_(0, ids, -torch.inf)


@dataclass(frozen=True)
class _Banned:
    """One row's bad words. singles: int64 ids that are never allowed.

    lasts: int64 [B], the last ids of longer sequences; prefixes: int64 [B, P], what must stand
    before them, right-aligned, -1 where shorter; lengths: int64 [B], ids of each prefix.
    """

    singles: torch.Tensor
    lasts: torch.Tensor
    prefixes: torch.Tensor
    lengths: torch.Tensor


class BadWords(Stage):
    """Masks the last id of a forbidden sequence where the ids before it were just generated."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self._banned: dict[int, _Banned] = {}

    def admit(self, admission: Admission) -> bool:
        words = [
            word
            for word in dict.fromkeys(admission.params.bad_words_token_ids)
            if word and all(0 <= token < self.vocab_size for token in word)
        ]
        if words:
            self._banned[admission.row] = self._table(words)
        return bool(words)

    def release(self, row: int) -> None:
        del self._banned[row]

    def _table(self, words: list[tuple[int, ...]]) -> _Banned:
        longer = [word for word in words if len(word) > 1]
        width = max((len(word) - 1 for word in longer), default=0)
        prefixes = torch.full((len(longer), width), -1, dtype=torch.int64)
        for line, word in zip(prefixes, longer, strict=True):
            line[width - len(word) + 1 :] = torch.tensor(word[:-1])
        return _Banned(
            singles=self._device([word[0] for word in words if len(word) == 1]),
            lasts=self._device([word[-1] for word in longer]),
            prefixes=prefixes.to(self.device),
            lengths=self._device([len(word) - 1 for word in longer]),
        )

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        for slot, row, position, prompt in zip(
            batch.slots, batch.rows, batch.positions, batch.prompt_lengths, strict=True
        ):
            banned = self._banned[row]
            logits[slot].index_fill_(0, banned.singles, -torch.inf)
            if len(banned.lasts):
                self._mask_sequences(logits[slot], banned, row, position, position - prompt)

    def _mask_sequences(
        self, logits: torch.Tensor, banned: _Banned, row: int, position: int, generated: int
    ) -> None:
        width = banned.prefixes.shape[1]
        known = min(width, position)
        tail = self.token_ids.new_full((width,), -2)
        tail[width - known :] = self.token_ids[row, position - known : position]
        matches = ((banned.prefixes == tail) | (banned.prefixes < 0)).all(dim=1)
        matches &= banned.lengths <= generated
        # Two sequences may end with the same id: adding lets either of them mask it.
        mask = torch.zeros_like(banned.lasts, dtype=logits.dtype).masked_fill_(matches, -torch.inf)
        logits.index_add_(0, banned.lasts, mask)
