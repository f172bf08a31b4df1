"""Tables that fit a terminal."""

from __future__ import annotations

from infer.cli.console import WIDTH, table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table([("A", "B", "C"), ("long", "x", "end")]) == "A     B  C\nlong  x  end"


def test_the_last_column_is_wrapped_under_itself() -> None:
    lines = table([("name", "word " * 60)]).splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= WIDTH
    assert all(line.startswith("      word") for line in lines[1:])


def test_a_long_word_stays_whole_so_that_it_can_be_copied() -> None:
    path = "/folder" * 30
    assert path in table([("file", path)])


def test_empty_cells_leave_no_blanks_at_the_end() -> None:
    assert table([("a", ""), ("bbb", "c")]) == "a\nbbb  c"
