"""From sampled ids to text: detokenizing, stop strings, log-probabilities."""

from __future__ import annotations

from infer.engine.input_processor import Prepared
from infer.engine.messages import TokenOutput
from infer.engine.outputs import Delta, TokenLogprob
from infer.text.detokenizer import IncrementalDetokenizer
from infer.text.stop import StopStrings
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.execution import TokenLogprobs
from infer_plugin_api.sampling import SamplingParams


class AnswerStream:
    """One answer that grows. ``push`` takes the engine's news, returns what callers see.

    finished turns True with the last delta; news after that are ignored. A stop string ends the
    answer here: the caller must abort the request in the engine (``stopped_here``).
    """

    def __init__(self, tokenizer: Tokenizer, prepared: Prepared, index: int) -> None:
        self.index = index
        self.request_id = prepared.children[index].request_id
        self.finished = False
        self.stopped_here = False
        self._tokenizer = tokenizer
        self._params: SamplingParams = prepared.params
        self._stop_ids = frozenset(prepared.children[index].stop_ids)
        self._num_prompt_tokens = len(prepared.prompt_token_ids)
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._stops = StopStrings(
            self._params.stop, include=self._params.include_stop_str_in_output
        )
        self._count = 0

    def push(self, output: TokenOutput) -> Delta | None:
        """Return the delta of these news; None when there is nothing new for the caller."""
        if self.finished:
            return None
        text, used, stop = self._text(output)
        reason, stop_reason = output.finish_reason, output.stop_reason
        if stop is not None:
            self.stopped_here = reason is None
            reason, final_stop = "stop", stop
        else:
            final_stop = None
            if reason is not None:
                text += self._end()
        self.finished = reason is not None
        if not (used or text or self.finished):
            return None
        return Delta(
            index=self.index,
            text=text,
            token_ids=output.token_ids[:used],
            logprobs=self._logprobs(output, used),
            finish_reason=reason,
            stop_reason=final_stop if final_stop is not None else stop_reason,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=output.num_cached_tokens,
            num_output_tokens=self._count,
            first_scheduled=output.first_scheduled,
        )

    def _text(self, output: TokenOutput) -> tuple[str, int, str | None]:
        """Return (new text, how many of the ids count, the stop string that was met)."""
        shown = ""
        for used, token in enumerate(output.token_ids, 1):
            self._count += 1
            last = used == len(output.token_ids)
            if last and output.finish_reason == "stop" and self._hidden(token):
                continue
            piece = self._detokenizer.push((token,))
            may_stop = self._count >= self._params.min_tokens
            text, stop = self._stops.push(piece, may_stop=may_stop)
            shown += text
            if stop is not None:
                return shown, used, stop
        return shown, len(output.token_ids), None

    def _hidden(self, token: int) -> bool:
        """Whether the id that ended the answer is not part of its text."""
        return token in self._stop_ids and not self._params.include_stop_str_in_output

    def _end(self) -> str:
        """Return what detokenizer and stop strings still hold back."""
        text, stop = self._stops.push(self._detokenizer.finish())
        return text if stop is not None else text + self._stops.flush()

    def _logprobs(self, output: TokenOutput, used: int) -> list[TokenLogprob] | None:
        if self._params.logprobs is None:
            return None
        entries = output.logprobs or []
        return [
            self._logprob(token, entry)
            for token, entry in zip(output.token_ids[:used], entries, strict=False)
        ]

    def _logprob(self, token: int, entry: TokenLogprobs) -> TokenLogprob:
        top = tuple(
            self._token(top_id, logprob, rank)
            for rank, (top_id, logprob) in enumerate(
                zip(entry.top_ids, entry.top_logprobs, strict=True), 1
            )
        )
        return self._token(token, entry.logprob, entry.rank, top)

    def _token(
        self, token: int, logprob: float, rank: int, top: tuple[TokenLogprob, ...] = ()
    ) -> TokenLogprob:
        data = self._tokenizer.token_bytes(token)
        return TokenLogprob(
            token_id=token,
            text=data.decode("utf-8", errors="replace"),
            bytes=data,
            logprob=logprob,
            rank=rank,
            top=top,
        )
