"""What a person at a terminal gets from ``infer run`` and ``infer chat``."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infer import LLM
from infer.cli.main import main
from infer.config.errors import UserError
from tests.chain_model import chain_model
from tests.models import tiny_model

SCRIPT = "ABCDEFGHIJKLMNOP"
Output = pytest.CaptureFixture[str]
GREEDY = ("--temperature", "0", "--dtype", "float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def alphabet(folder: Path) -> str:
    return str(chain_model("alphabet", folder))


@pytest.fixture(scope="module")
def tiny(folder: Path) -> str:
    return str(tiny_model(folder / "tiny"))


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


@pytest.mark.parametrize("flags", [(), ("--raw",)])
def test_run_prints_the_answer_and_nothing_else(
    alphabet: str, flags: tuple[str, ...], capsys: Output
) -> None:
    assert main(["run", alphabet, "x", *GREEDY, *flags]) == 0
    assert capsys.readouterr().out == f"{SCRIPT}\n"


def test_run_reads_a_long_prompt_from_stdin(
    alphabet: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "a prompt", "of two lines")
    assert main(["run", alphabet, "-", *GREEDY, "--max-tokens", "2"]) == 0
    assert capsys.readouterr().out == "ABCDEF\n"


def test_run_answers_as_the_python_api_does(tiny: str, capsys: Output) -> None:
    assert main(["run", tiny, "Hello", *GREEDY, "--max-tokens", "12"]) == 0
    with LLM(tiny, dtype="float32") as llm:
        params = llm.sampling_params(temperature=0, max_tokens=12)
        said = llm.chat([{"role": "user", "content": "Hello"}], params)[0].outputs[0].text
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["m", "two", "words"], "3 words given; quote the prompt"),
        (["/no/such/model", "x"], "/no/such/model"),
    ],
)
def test_run_refuses_in_one_line(words: list[str], told: str, capsys: Output) -> None:
    assert main(["run", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("flag", ["--max-tokens=0", "--temperature=-1", "--top-p=0"])
def test_run_refuses_a_wrong_value_by_name(alphabet: str, flag: str, capsys: Output) -> None:
    assert main(["run", alphabet, "x", flag]) == 2
    name = flag.lstrip("-").partition("=")[0].replace("-", "_")
    assert capsys.readouterr().err.startswith(f"infer: error: {name}: ")


def test_what_the_model_recommends_holds_unless_told_otherwise(folder: Path) -> None:
    tiny = tiny_model(folder / "recommends")
    (tiny / "generation_config.json").write_text('{"temperature": 0.0, "max_new_tokens": 3}')
    with LLM(str(tiny), dtype="float32") as llm:
        first, again = (llm.generate("Hello")[0].outputs[0].token_ids for _ in range(2))
        longer = llm.generate("Hello", llm.sampling_params(max_tokens=5))[0].outputs[0].token_ids
        streamed = list(llm.stream("Hello"))
    assert len(first) == 3
    assert again == first == longer[:3]
    assert len(longer) == 5
    assert [token for delta in streamed for token in delta.token_ids] == first


def test_chat_remembers_until_it_is_reset(
    tiny: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "one", "two", "", "/reset", "one", "/exit", "never asked")
    assert main(["chat", tiny, "--system", "be brief", *GREEDY, "--max-tokens", "8"]) == 0
    said = capsys.readouterr().out
    system, one = {"role": "system", "content": "be brief"}, {"role": "user", "content": "one"}
    with LLM(tiny, dtype="float32") as llm:
        params = llm.sampling_params(temperature=0, max_tokens=8)
        first = llm.chat([system, one], params)[0].outputs[0].text
        history = [system, one, {"role": "assistant", "content": first}]
        second = llm.chat([*history, {"role": "user", "content": "two"}], params)[0].outputs[0].text
    assert first != second
    assert said.partition("\n")[2] == f"> {first}\n> {second}\n> > > {first}\n> "


def test_chat_goes_on_after_a_message_that_is_too_long(
    alphabet: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "word " * 200, "x")
    assert main(["chat", alphabet, *GREEDY, "--max-model-len", "256"]) == 0
    out, err = capsys.readouterr()
    assert "the model takes 256 for prompt and answer together" in err
    assert "/reset" in err
    assert f"> {SCRIPT}\n" in out


def test_chat_goes_on_after_a_message_that_the_template_refuses(
    alphabet: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% if messages[-1].content == 'no' %}{{ raise_exception('not that') }}{% endif %}x"
    )
    type_lines(monkeypatch, "no", "yes")
    assert main(["chat", alphabet, *GREEDY, "--chat-template", str(template)]) == 0
    out, err = capsys.readouterr()
    assert "not that" in err
    assert f"> {SCRIPT}\n" in out


def test_a_refusal_of_the_template_is_one_line_to_run(
    alphabet: str, tmp_path: Path, capsys: Output
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ raise_exception('not that') }}")
    assert main(["run", alphabet, "x", "--chat-template", str(template)]) == 2
    assert capsys.readouterr().err == "infer: error: not that\n"


def test_chat_without_a_template_says_so_before_it_asks(folder: Path, capsys: Output) -> None:
    plain = tiny_model(folder / "plain")
    settings = (plain / "tokenizer_config.json").read_text()
    (plain / "tokenizer_config.json").write_text(settings.replace("chat_template", "was_template"))
    assert main(["chat", str(plain)]) == 2
    out, err = capsys.readouterr()
    assert "plain has no chat template; give one with --chat-template FILE" in err
    assert out == ""
    with LLM(str(plain)) as llm, pytest.raises(UserError, match="no chat template"):
        llm.chat([{"role": "user", "content": "x"}])


def test_ctrl_c_ends_the_answer_and_not_the_chat(folder: Path) -> None:
    coin = str(chain_model("coin", folder))
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "infer", "chat", coin, *GREEDY, "--max-tokens", "3000"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        read_until(terminal, "> ")
        os.write(terminal, b"x\n")
        read_until(terminal, "HHHHHHHH")
        process.send_signal(signal.SIGINT)
        read_until(terminal, "[stopped]\r\n> ")
        os.write(terminal, b"/exit\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_until(terminal: int, words: str, seconds: float = 60) -> None:
    """Read what a terminal shows up to *words*; fails after *seconds* or when it is closed."""
    end, seen = time.monotonic() + seconds, ""
    os.set_blocking(terminal, False)
    while words not in seen:
        assert time.monotonic() < end, seen
        try:
            seen += os.read(terminal, 4096).decode()
        except BlockingIOError:
            time.sleep(0.02)
        except OSError as error:
            raise AssertionError(f"the program has ended: {seen}") from error
