"""Documents say what the code says."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infer.cli import serve
from infer.cli.main import COMMANDS
from infer.cli.parser import CommandParser
from infer.engine.messages import EngineStats
from infer.telemetry.metrics import Metrics
from infer_plugin_api.sampling import SamplingParams
from tools import command_reference, documents, hook_reference
from tools.workspace import ROOT, packages

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS += [package.folder / "README.md" for package in packages()]
GUIDE = ROOT / "docs" / "plugin-author-guide.md"

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def test_the_hook_reference_is_generated_from_the_specifications() -> None:
    assert hook_reference.page() == hook_reference.PAGE.read_text(), "run: tox -e docs"


def test_the_command_reference_is_generated_from_the_parsers() -> None:
    assert command_reference.page() == command_reference.PAGE.read_text(), "run: tox -e docs"


def test_the_files_of_the_author_guide_are_those_of_the_example() -> None:
    example = ROOT / "examples" / "plugins" / "no-repeat"
    for name, text in documents.files(GUIDE).items():
        assert (example / name).read_text() == text, name


@every_document
def test_links_lead_to_files_that_exist(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_configuration_file_of_the_user_guide_is_taken_by_serve(tmp_path: Path) -> None:
    guide = ROOT / "docs" / "user-guide.md"
    (text,) = (block.text for block in documents.blocks(guide) if block.language == "yaml")
    (tmp_path / "serve.yaml").write_text(text)
    parser = CommandParser()
    serve.add_arguments(parser)
    args = parser.parse_args(["--config", str(tmp_path / "serve.yaml"), "--port", "8081"])
    assert (args.model, args.port, args.max_num_seqs) == ("smollm2", 8081, 32)
    assert args.enable_prefix_caching is False
    assert args.served_model_name == ["smollm2", "default"]


@every_document
def test_python_and_json_in_documents_can_be_parsed(document: Path) -> None:
    if document == hook_reference.PAGE:
        pytest.skip("its code blocks are signatures")
    for block in documents.blocks(document):
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "json":
            json.loads(block.text)


@every_document
def test_commands_in_documents_are_commands_of_infer(document: Path) -> None:
    for command in documents.commands(document):
        words = shlex.split(command)
        if words[0].endswith("infer"):
            command_reference.parser_of(words[1]).parse_args(words[2:])


@every_document
def test_flags_in_documents_are_flags_of_infer(document: Path) -> None:
    known = {flag for name in COMMANDS for flag in flags_of(command_reference.parser_of(name))}
    others = {"--unix-socket", "--check", "--help", "--version"}
    text = re.sub(r"^.*(?:pip|pytest|tox|git|benchmarks/).*$", "", document.read_text(), flags=re.M)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+(?!\w)", text))
    assert not named - known - others


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the flags of a parser and of its subcommands."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                found |= flags_of(sub)
    return found


USER_GUIDE = ROOT / "docs" / "user-guide.md"


def test_the_user_guide_names_every_sampling_parameter() -> None:
    text = USER_GUIDE.read_text()
    internal = {"bad_words_token_ids"}
    names = {field.name for field in dataclasses.fields(SamplingParams)} - internal
    assert not {name for name in names if f"`{name}`" not in text}


def test_the_user_guide_names_every_metric() -> None:
    text = USER_GUIDE.read_text()
    metrics = Metrics()
    metrics.describe({}, {})
    metrics.observe_engine(EngineStats())
    families = text_string_to_metric_families(metrics.exposition().decode())
    names = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    names = {name for name in names if not name.endswith("_created")}
    assert not {name for name in names if name not in text}
    shown = set(re.findall(r"`(infer_[a-z_0-9]+)", text.partition("## Metrics")[2]))
    assert not {name for name in shown if name not in names}


def test_the_user_guide_names_every_environment_variable() -> None:
    sources = [*(ROOT / "core" / "src").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")]
    read = {name for path in sources for name in re.findall(r"\bINFER_[A-Z_]+", path.read_text())}
    named = set(re.findall(r"`(INFER_[A-Z_]+)", USER_GUIDE.read_text()))
    assert named == read


def test_messages_in_the_troubleshooting_tables_are_in_the_code() -> None:
    sources = [*(ROOT / "core" / "src").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")]
    sources += (ROOT / "plugin_api" / "src").rglob("*.py")
    # Adjacent literals are one text; quotes and names in braces end a piece.
    code = "".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in sources)
    for guide, title in ((USER_GUIDE, "Troubleshooting"), (GUIDE, "When it does not work")):
        section = guide.read_text().partition(f"## {title}")[2].partition("\n## ")[0]
        messages = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
        assert messages
        for message in messages:
            pieces = re.split(
                r"'\w+'|\b[A-Z]+\b|…|\(|\)|\d\.\d|infer_\w+|package\.module:Class", message
            )
            for piece in (piece.strip(" ;:?") for piece in pieces):
                assert piece in code, f"{guide.name}: {message}: {piece!r}"
