"""Who has which of the workers' permanent rows."""

from __future__ import annotations


class RowPool:
    """Rows 0 ... max_rows - 1. A row can be given again when every step that names it retired.

    ``take_releases`` tells the worker, with the next plan, which rows lost their request.
    """

    def __init__(self, max_rows: int) -> None:
        self._free = list(range(max_rows - 1, -1, -1))
        self._leaving: dict[int, list[int]] = {}
        self._releases: list[int] = []
        self._retired = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_leaving(self) -> int:
        """Rows that will be free when the steps in flight retire."""
        return sum(map(len, self._leaving.values()))

    def take(self) -> int:
        return self._free.pop()

    def give(self, row: int, last_step: int) -> None:
        """Return a row that *last_step* was the last to name."""
        if last_step > self._retired:
            self._leaving.setdefault(last_step, []).append(row)
        else:
            self._release(row)

    def retire(self, step_id: int) -> None:
        self._retired = step_id
        for row in self._leaving.pop(step_id, ()):
            self._release(row)

    def take_releases(self) -> list[int]:
        releases, self._releases = self._releases, []
        return releases

    def _release(self, row: int) -> None:
        self._free.append(row)
        self._releases.append(row)
