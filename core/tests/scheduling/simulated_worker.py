"""A worker without a device: it executes plans on slots that remember what was written.

The "model" is a pure function of all tokens before, so a request's right answer does not depend on
what else happens. A slot stands for a key and a value: it holds a digest of the salt and of every
token up to its position, which is what real keys and values depend on. Every attention checks every
slot it would read, through the worker's own block tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infer_plugin_api.execution import Admission, RowStep, StepPlan, StepResult

_MASK = (1 << 61) - 1


def extend_digest(digest: int, token: int) -> int:
    return (
        digest * 6364136223846793005 + token * 2862933555777941757 + 1442695040888963407
    ) & _MASK


def start_digest(salt: str) -> int:
    return sum((index + 1) * 7919 * ord(letter) for index, letter in enumerate(salt))


def next_token(digest: int, vocab_size: int, masked: tuple[int, ...] = ()) -> int:
    """The model: the token that follows a history, chosen among those not masked."""
    allowed = [token for token in range(vocab_size) if token not in masked]
    return allowed[(digest >> 17) % len(allowed)]


def answer(
    prompt: list[int], vocab_size: int, stop_ids: tuple[int, ...], min_tokens: int, max_tokens: int
) -> list[int]:
    """What a request must generate, however it is scheduled."""
    digest = start_digest("")
    for token in prompt:
        digest = extend_digest(digest, token)
    output: list[int] = []
    while len(output) < max_tokens:
        token = next_token(digest, vocab_size, stop_ids if len(output) < min_tokens else ())
        output.append(token)
        digest = extend_digest(digest, token)
        if token in stop_ids:
            break
    return output


@dataclass
class _Row:
    """tokens: known to the device. plain, salted: digests of tokens[: i + 1] at i."""

    admission: Admission
    salt: str
    tables: list[dict[int, int]]
    tokens: list[int] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)
    salted: list[int] = field(default_factory=list)

    def push(self, token: int) -> None:
        self.plain.append(extend_digest(self.plain[-1] if self.plain else start_digest(""), token))
        before = self.salted[-1] if self.salted else start_digest(self.salt)
        self.salted.append(extend_digest(before, token))
        self.tokens.append(token)

    def cut(self, length: int) -> None:
        del self.tokens[length:], self.plain[length:], self.salted[length:]


class SimulatedWorker:
    """windows: per KV group the sliding window or None. salts: request id -> cache salt.

    draft_hits: of ten drafted tokens, how many are right. failing: request ids whose sampling
    fails.
    """

    def __init__(
        self,
        windows: tuple[int | None, ...],
        block_size: int,
        num_blocks: int,
        max_rows: int,
        vocab_size: int,
        draft_hits: int,
    ) -> None:
        self.windows = windows
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.max_rows = max_rows
        self.vocab_size = vocab_size
        self.draft_hits = draft_hits
        self.salts: dict[str, str] = {}
        self.failing: set[str] = set()
        self.rows: dict[int, _Row] = {}
        self.slots: dict[tuple[int, int], tuple[int, int]] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        self._apply(plan)
        drafts = [self._draft(step) for step in plan.rows]
        for step in plan.rows:
            self._store(step)
        for step in plan.rows:
            self._attend(step)
        token_ids: list[list[int]] = []
        errors: dict[int, str] = {}
        for step, count in zip(plan.rows, drafts, strict=True):
            row = self.rows[step.row]
            if step.sample and row.admission.request_id in self.failing:
                errors[step.row] = "the logits processor failed"
                row.cut(len(row.tokens) - count)
                token_ids.append([])
            else:
                token_ids.append(self._sample(row, count) if step.sample else [])
        return StepResult(plan.step_id, token_ids, errors=errors)

    def named_blocks(self, step: RowStep) -> set[int]:
        """Blocks that a row reads or writes in one step, once its plan was applied."""
        row, end = self.rows[step.row], step.start + step.num_tokens
        return {
            row.tables[group][index]
            for group, window in enumerate(self.windows)
            for index in range(self._first(step.start, window), (end - 1) // self.block_size + 1)
        }

    def _first(self, start: int, window: int | None) -> int:
        return 0 if window is None else max(0, start - window + 1) // self.block_size

    def _apply(self, plan: StepPlan) -> None:
        for index in plan.releases:
            assert index in self.rows, f"row {index} was released without an occupant"
            del self.rows[index]
        for admission in plan.admissions:
            assert admission.row not in self.rows, f"row {admission.row} has an occupant"
            assert 0 <= admission.row < self.max_rows
            salt = self.salts[admission.request_id]
            row = _Row(admission, salt, [{} for _ in self.windows])
            for token in admission.token_ids:
                row.push(token)
            self.rows[admission.row] = row
        for append in plan.appends:
            table = self.rows[append.row].tables[append.group]
            for offset, block in enumerate(append.blocks):
                assert 0 <= block < self.num_blocks
                table[append.start + offset] = block

    def _draft(self, step: RowStep) -> int:
        """Write guesses for the positions past the row's tokens; return how many."""
        row = self.rows[step.row]
        count = max(0, step.start + step.num_tokens - len(row.tokens))
        for _ in range(count):
            digest = row.plain[-1]
            right = next_token(digest, self.vocab_size)
            wrong = (digest >> 7) % 10 >= self.draft_hits
            row.push((right + 1) % self.vocab_size if wrong else right)
        return count

    def _store(self, step: RowStep) -> None:
        row = self.rows[step.row]
        assert step.num_tokens > 0
        for position in range(step.start, step.start + step.num_tokens):
            for group, table in enumerate(row.tables):
                block = table[position // self.block_size]
                slot = (block, position % self.block_size)
                self.slots[slot] = (group, row.salted[position])

    def _attend(self, step: RowStep) -> None:
        row = self.rows[step.row]
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, step.start - window + 1)
            table = row.tables[group]
            for position in range(first, step.start + step.num_tokens):
                slot = (table[position // self.block_size], position % self.block_size)
                assert self.slots.get(slot) == (group, row.salted[position]), (
                    f"{row.admission.request_id}: group {group}, position {position} reads slot "
                    f"{slot}, which holds something else"
                )

    def _sample(self, row: _Row, drafts: int) -> list[int]:
        """Verify the last *drafts* tokens; return what was accepted and one more."""
        guesses = row.tokens[len(row.tokens) - drafts :] if drafts else []
        row.cut(len(row.tokens) - drafts)
        ids: list[int] = []
        for guess in [*guesses, None]:
            token = self._next(row)
            ids.append(token)
            row.push(token)
            if token != guess:
                break
        return ids

    def _next(self, row: _Row) -> int:
        generated = len(row.tokens) - row.admission.num_prompt_tokens
        masked = row.admission.stop_ids if generated < row.admission.params.min_tokens else ()
        return next_token(row.plain[-1], self.vocab_size, masked)
