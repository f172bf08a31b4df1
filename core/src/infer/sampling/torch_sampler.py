"""The built-in sampler, in torch, for any device."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from infer.sampling.ranking import leading
from infer.sampling.uniform import uniform
from infer_plugin_api.sampling import Sampler, SamplingBatch

_FIRST_TRY = 1024
"""Candidates that are sorted before the whole vocabulary is: most nuclei are smaller."""


class TorchSampler(Sampler):
    """Temperature, min_p, top_k, top_p, then a draw by inversion of the cumulative distribution.

    One uniform number per row, a function of its seed and position. Every operation works on one
    row at a time in an order that does not depend on the batch, so on the CPU a row's token is
    the same, bit for bit, whatever is sampled beside it.

    Definitions: min_p keeps tokens at least min_p times as likely as the most likely one;
    top_k keeps the k most likely; top_p keeps the fewest most likely tokens whose share of what
    is left reaches top_p. Among equally likely tokens the one with the lower id ranks first.
    """

    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        if batch.all_greedy:
            return logits.argmax(dim=-1)
        greedy = logits.argmax(dim=-1) if batch.any_greedy else None
        weights = _weights(logits, batch)
        numbers = uniform(batch.seeds, batch.positions)
        tokens = _draw(weights, numbers)
        if batch.any_top_k or batch.any_top_p:
            ranked = _draw_ranked(weights, numbers, batch)
            tokens = torch.where(_is_ranked(batch, logits.shape[-1]), ranked, tokens)
        return tokens if greedy is None else torch.where(batch.greedy, greedy, tokens)


def _weights(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    """Return float32 [S, vocab] probabilities, zero where min_p drops a token."""
    # The largest is subtracted first: logits / 1e-5 alone would lose the difference of near ties.
    scaled = logits.sub_(logits.amax(dim=-1, keepdim=True)).div_(batch.temperature.unsqueeze(1))
    weights = torch.softmax(scaled, dim=-1)
    if batch.any_min_p:
        least = batch.min_p * weights.amax(dim=-1)
        weights.masked_fill_(weights < least.unsqueeze(1), 0.0)
    return weights


def _is_ranked(batch: SamplingBatch, vocab_size: int) -> torch.Tensor:
    return (batch.top_k < vocab_size) | (batch.top_p < 1.0)


def _draw(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Draw int64 [S] in proportion to float32 *weights* [S, N], which need not sum to one."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:]
    target = (numbers.unsqueeze(1) * total.double()).float()
    below = torch.nextafter(total, torch.zeros_like(total))
    chosen = torch.searchsorted(cumulative, torch.minimum(target, below), right=True)
    return chosen.squeeze(1).clamp_(max=weights.shape[-1] - 1)


def _draw_ranked(
    weights: torch.Tensor, numbers: torch.Tensor, batch: SamplingBatch
) -> torch.Tensor:
    """Draw rows cut by top_k or top_p; other rows get a token that the caller ignores."""
    size = weights.shape[-1]
    truncation = _truncation(weights, numbers, batch)
    if weights.device.type != "cpu":
        return truncation.draw(size)[0]
    widest = int(torch.where(batch.top_k < size, batch.top_k, 0).max())
    tokens, settled = truncation.draw(min(max(widest, _FIRST_TRY), size))
    if not bool(settled.all()):
        unsettled = (~settled).nonzero().squeeze(1)
        tokens[unsettled] = truncation.select(unsettled).draw(size)[0]
    return tokens


@dataclass(frozen=True)
class _Truncation:
    """S rows to be cut by rank. Prefix sums run from the most likely token down, in float64.

    weights: float32 [S, vocab]; numbers: the rows' uniforms. candidates: int64 [S], how many
    tokens top_k and min_p leave; both keep a prefix of the ranking. ranked: rows that matter.
    """

    weights: torch.Tensor
    numbers: torch.Tensor
    top_p: torch.Tensor
    candidates: torch.Tensor
    ranked: torch.Tensor

    def select(self, rows: torch.Tensor) -> _Truncation:
        """Return the same for some of the rows."""
        return _Truncation(
            **{part.name: getattr(self, part.name).index_select(0, rows) for part in fields(self)}
        )

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw from the *count* most likely tokens: int64 [S], and bool [S] where that was enough.

        A row for which it was enough gets the same token with any larger count.
        """
        values, ids = leading(self.weights, count)
        sums = values.double().cumsum(dim=-1)
        kept, settled = self._kept(sums)
        target = self.numbers.unsqueeze(1) * _sum_of(sums, kept)
        chosen = torch.searchsorted(sums, target, right=True).squeeze(1)
        chosen = torch.minimum(chosen, kept.clamp(1, count) - 1)
        return ids.gather(1, chosen.unsqueeze(1)).squeeze(1), settled

    def _kept(self, sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many tokens each row keeps, and whether *sums* reach far enough to tell."""
        count, size = sums.shape[-1], self.weights.shape[-1]
        limited = self.candidates < size
        left = torch.where(limited.unsqueeze(1), _sum_of(sums, self.candidates), 1.0)
        nucleus = torch.searchsorted(sums, left * self.top_p.unsqueeze(1)).squeeze(1) + 1
        has_top_p = self.top_p < 1.0
        kept = torch.where(has_top_p, torch.minimum(self.candidates, nucleus), self.candidates)
        known = ~has_top_p | ~limited | (self.candidates <= count)
        return kept, ~self.ranked | (known & (kept <= count)) | (count == size)


def _truncation(weights: torch.Tensor, numbers: torch.Tensor, batch: SamplingBatch) -> _Truncation:
    candidates = batch.top_k
    if batch.any_min_p:
        survivors = torch.minimum(batch.top_k, (weights > 0).sum(dim=-1))
        candidates = torch.where(batch.min_p > 0, survivors, batch.top_k)
    ranked = _is_ranked(batch, weights.shape[-1])
    return _Truncation(weights, numbers, batch.top_p.double(), candidates, ranked)


def _sum_of(sums: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Return float64 [S, 1]: the mass of each row's *number* most likely tokens."""
    return sums.gather(1, number.clamp(1, sums.shape[-1]).unsqueeze(1) - 1)
