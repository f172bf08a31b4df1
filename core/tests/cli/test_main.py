"""The command line: finding commands, and turning errors into exit codes and single lines."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from infer.cli import main as program
from infer.cli.main import COMMANDS, SUMMARIES, main
from infer.config.errors import EngineError, UserError
from infer.version import infer_version
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sampling import ParameterError

Output = pytest.CaptureFixture[str]
Command = Callable[..., None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Add a command ``try`` that does what the test says."""

    def add(do: Callable[[], int | None]) -> None:
        module = ModuleType("infer_command_of_a_test")
        module.SUMMARY = "a command"
        module.add_arguments = lambda parser: parser.add_argument("--flag", action="store_true")
        module.run = lambda args: do() or 0
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(program.COMMANDS, "try", module.__name__)

    return add


def raising(error: BaseException) -> Callable[[], int]:
    def do() -> int:
        raise error

    return do


def test_help_lists_every_command_and_fits_a_terminal(capsys: Output) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, summary in SUMMARIES.items():
        assert any(line.split() == [name, *summary.split()] for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_help_is_the_commands_own(name: str) -> None:
    assert SUMMARIES[name] == importlib.import_module(COMMANDS[name]).SUMMARY


def test_version_is_that_of_core(capsys: Output) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"infer {infer_version()}\n"


def test_without_a_command_the_help_goes_to_stderr_and_the_code_is_2(capsys: Output) -> None:
    assert main([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "usage: infer COMMAND" in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plugin"], "unknown command 'plugin'; there are serve, "),
        (["plugin"], "did you mean 'plugins'?"),
        (["zzz"], "unknown command 'zzz'"),
        (["--port", "1"], "unknown flag '--port' before the command; see infer --help"),
    ],
)
def test_an_unknown_command_is_one_line_and_code_2(
    capsys: Output, arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("infer: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--flg"], "unrecognized arguments: --flg; did you mean --flag? see infer try --help"),
        (["--fla"], "unrecognized arguments: --fla; did you mean --flag? see infer try --help"),
        (["-q"], "unrecognized arguments: -q; see infer try --help"),
        (["more"], "unrecognized arguments: more; see infer try --help"),
        (["--flag=1"], "argument --flag: ignored explicit argument '1'; see infer try --help"),
    ],
)
def test_an_unknown_argument_is_one_line_and_code_2(
    capsys: Output, command: Command, arguments: list[str], message: str
) -> None:
    command(lambda: 0)
    with pytest.raises(SystemExit) as raised:
        main(["try", *arguments])
    assert raised.value.code == 2
    assert capsys.readouterr().err == f"infer: error: {message}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("no such thing;\ntry another"), 2),
        (ModelError("no such thing; try another"), 2),
        (ParameterError("no such thing; try another", ""), 2),
        (EngineError("no such thing; try another"), 1),
    ],
)
def test_an_error_is_one_line_and_its_code(
    capsys: Output, command: Command, error: Exception, code: int
) -> None:
    command(raising(error))
    assert main(["try"]) == code
    assert capsys.readouterr().err.rstrip(": \n") == ("infer: error: no such thing; try another")


def test_a_bug_keeps_its_traceback(command: Command) -> None:
    command(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["try"])


def test_an_interrupt_is_code_130(command: Command) -> None:
    command(raising(KeyboardInterrupt()))
    assert main(["try"]) == 130


def test_the_commands_code_is_the_programs(command: Command) -> None:
    command(lambda: 7)
    assert main(["try"]) == 7


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["plugins"], ["--help"], ["plugins", "--help"]])
def test_a_reader_that_goes_away_is_no_error_to_read_about(
    unbuffered: str, arguments: list[str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "infer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=30)
    assert errors == ""
    # argparse prints its help and does not look whether that worked.
    assert process.returncode == 1 or arguments == ["plugins", "--help"]
