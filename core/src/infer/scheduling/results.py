"""What a step's result means for one request: new tokens, and whether they end it."""

from __future__ import annotations

from infer.scheduling.config import Update
from infer.scheduling.request import Request
from infer_plugin_api.execution import RowStep, StepResult, TokenLogprobs


def apply_result(request: Request, step: RowStep, result: StepResult, index: int) -> Update | None:
    """Append what row *index* of the result sampled; None when there is no news.

    The request may have been preempted meanwhile: its tokens are good all the same. Of several
    ids those after the one that ends the request are dropped. Raises RuntimeError when the worker
    returned another number of ids than the step allows.
    """
    ids = result.token_ids[index]
    error = result.errors.get(step.row) if result.errors else None
    if error is None and not step.sample and not ids:
        return None
    drafts = _settle(request, step, len(ids))
    if error is not None:
        return _news(request, [], None, "error", error=error)
    if not (1 <= len(ids) <= 1 + drafts) or not step.sample:
        raise RuntimeError(
            f"step {result.step_id} returned {len(ids)} ids for request {request.request_id} "
            f"(row {step.row}), which verified {drafts} drafts"
        )
    accepted, reason, stop_reason = _accept(request, ids)
    logprobs = None
    if request.params.logprobs is not None and result.logprobs:
        logprobs = result.logprobs[index][: len(accepted)]
    return _news(request, accepted, logprobs, reason, stop_reason)


def _settle(request: Request, step: RowStep, num_ids: int) -> int:
    """Replace the optimistic position by the true one; return how many drafts were verified.

    Results arrive in order, so all tokens before the sampled ones are known by now.
    """
    if not step.sample:
        return 0
    drafts = step.start + step.num_tokens - len(request.token_ids)
    if drafts == 0:
        request.num_pending -= 1
    else:
        request.drafting = False
        if request.tables is not None:
            request.num_computed = step.start + num_ids
    return drafts


def _accept(request: Request, ids: list[int]) -> tuple[list[int], str | None, int | None]:
    """Append *ids* up to the first that ends the request; a stop id goes before the length."""
    known, stops = request.token_ids, request.stop_ids
    for count, token in enumerate(ids, 1):
        known.append(token)
        if token in stops and request.num_output_tokens > request.params.min_tokens:
            stop_reason = None if token in request.eos_ids else token
            return ids[:count], "stop", stop_reason
        if len(known) >= request.max_length:
            return ids[:count], "length", None
    return ids, None, None


def _news(
    request: Request,
    token_ids: list[int],
    logprobs: list[TokenLogprobs] | None,
    finish_reason: str | None,
    stop_reason: int | None = None,
    error: str | None = None,
) -> Update:
    cached = request.num_cached_tokens or 0
    return Update(
        request.request_id, token_ids, logprobs, finish_reason, stop_reason, error, cached
    )
