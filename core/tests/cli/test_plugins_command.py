"""``infer plugins``, as people and programs read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infer.cli.main import main
from tests.plugin_site import PREAMBLE, Site, sampler

Output = pytest.CaptureFixture[str]

EAR = "@hookimpl\ndef infer_engine_started():\n    pass\n"
OP = """
@hookimpl
def infer_ops():
    return [OpDescriptor(name="quick", op="silu_mul", implementation="a:B", summary="quick SiLU",
                         priority=7, requires_modules=("no_such_module",),
                         install_hint="pip install it")]
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(made.folder)
    made.install("mine", PREAMBLE + sampler("calm") + OP + EAR, version="2.5")
    made.install("broken", "import no_such_module", version="0.3")
    yield made
    made.forget()


def run(capsys: Output, *arguments: str) -> str:
    """Return stdout of a successful ``infer plugins``."""
    assert main(["plugins", *arguments]) == 0
    return capsys.readouterr().out


def row(text: str, *words: str) -> str:
    """Return the one line that begins with these cells."""
    (line,) = (line for line in text.splitlines() if line.split()[: len(words)] == [*words])
    return line


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_every_plugin_has_a_row_with_its_state(capsys: Output, arguments: tuple[str, ...]) -> None:
    text = run(capsys, *arguments)
    assert text.startswith("PLUGIN")
    assert row(text, "builtin", "0.1.0", "active", "infer-core")
    mine = row(text, "mine", "2.5", "active", "infer-mine")
    assert mine.endswith("op, sampler, events")
    assert "ModuleNotFoundError" in row(text, "broken", "0.3", "failed", "infer-broken")


def test_every_provider_has_a_row_with_its_owner_or_what_it_lacks(capsys: Output) -> None:
    text = run(capsys)
    assert row(text, "sampler", "calm", "mine", "0")
    assert (
        "op silu_mul quick mine 7 module 'no_such_module' is not installed; pip install it"
        in " ".join(text.split())
    )


def test_the_tables_fit_100_columns(capsys: Output) -> None:
    assert max(map(len, run(capsys).splitlines())) <= 100


def test_a_slot_alone_can_be_listed(capsys: Output) -> None:
    _, _, providers = run(capsys, "--slot", "sampler").partition("SLOT")
    slots = {line.split()[0] for line in providers.splitlines()[1:]}
    assert slots == {"sampler"}


def test_an_unknown_slot_is_an_error_that_lists_them(capsys: Output) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["plugins", "--slot", "smapler"])
    assert raised.value.code == 2
    assert "'scheduling_policy'" in capsys.readouterr().err


def test_tracebacks_come_only_with_v(capsys: Output) -> None:
    assert "Traceback" not in run(capsys)
    text = run(capsys, "-v")
    assert "plugin 'broken' (infer-broken 0.3):\nTraceback" in text
    assert "broken_module.py" in text


def test_a_failure_is_one_warning_on_stderr(capsys: Output) -> None:
    main(["plugins"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "infer: warning: plugin 'broken' (infer-broken 0.3) is left out: "
        "ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_json_says_the_same(capsys: Output) -> None:
    data: dict[str, Any] = json.loads(run(capsys, "--json"))
    assert data["schema"] == 1
    plugins = {plugin["name"]: plugin for plugin in data["plugins"]}
    broken, mine = plugins["broken"], plugins["mine"]
    assert (broken["state"], broken["source"]) == ("failed", "infer-broken")
    assert "no_such_module" in broken["reason"]
    assert "Traceback" in broken["traceback"]
    assert (mine["state"], mine["version"], mine["entry_point"]) == ("active", "2.5", "mine_module")
    assert mine["events"] == ["infer_engine_started"]
    op, calm = sorted(mine["providers"], key=lambda provider: provider["slot"])
    assert (calm["slot"], calm["qualified"], calm["missing"]) == ("sampler", "mine:calm", None)
    assert (op["op"], op["priority"], op["platforms"]) == ("silu_mul", 7, ["*"])
    assert "pip install it" in op["missing"]


def test_json_of_one_slot_has_no_other_providers(capsys: Output) -> None:
    data = json.loads(run(capsys, "--json", "--slot", "sampler"))
    slots = {provider["slot"] for plugin in data["plugins"] for provider in plugin["providers"]}
    assert slots == {"sampler"}


def test_show_describes_a_plugin_with_its_providers(capsys: Output) -> None:
    text = run(capsys, "show", "mine")
    for words in (
        ["state", "active"],
        ["distribution", "infer-mine", "2.5"],
        ["entry", "point", "mine_module"],
        ["API", "version", "1.0"],
        ["listens", "to", "infer_engine_started"],
        ["requires", "modules", "no_such_module"],
    ):
        assert row(text, *words)
    assert row(text, "sampler", "mine:calm:")
    assert row(text, "op", "silu_mul", "mine:quick:", "quick", "SiLU")


def test_show_describes_what_is_wrong_with_a_broken_plugin(capsys: Output) -> None:
    text = run(capsys, "show", "broken")
    assert row(text, "state", "failed:")
    assert "Traceback" in text
    assert "broken_module.py" in text


@pytest.mark.parametrize("name", ["calm", "mine:calm"])
def test_show_describes_a_provider(capsys: Output, name: str) -> None:
    text = run(capsys, "show", name)
    assert row(text, "sampler", "mine:calm:")
    assert row(text, "implementation", "nowhere:Nothing")


@pytest.mark.parametrize("name", ["mine", "calm"])
def test_show_speaks_json_too(capsys: Output, name: str) -> None:
    assert json.loads(run(capsys, "show", name, "--json"))[0]["name"] == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "needs the NAME"),
        (["list", "mine"], "takes no NAME, found 'mine'"),
        (["show", "nothing"], "no plugin or provider is named 'nothing'; plugins: builtin, "),
        (["--plugin", "mnie"], "plugin 'mnie' is not installed"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    capsys: Output, arguments: list[str], message: str
) -> None:
    assert main(["plugins", *arguments]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith("infer: error: ")
    assert message in errors[-1]


@pytest.mark.parametrize("flags", [["--strict-plugins"], ["--plugin", "broken"]])
def test_a_failure_that_counts_is_code_2_after_the_whole_list(
    capsys: Output, flags: list[str]
) -> None:
    """PLG-01"""
    assert main(["plugins", *flags]) == 2
    output = capsys.readouterr()
    assert row(output.out, "mine", "2.5", "active")
    (line,) = output.err.splitlines()
    assert line.startswith("infer: error: plugin 'broken' (infer-broken 0.3) is left out: ")


@pytest.mark.parametrize(
    ("flags", "variables", "state"),
    [
        ([], {}, "active"),
        (["--disable-plugin", "mine"], {}, "disabled"),
        (["--disable-plugin", "broken,mine"], {}, "disabled"),
        (["--only-plugins", ""], {}, "disabled"),
        (["--only-plugins", "mine"], {"INFER_PLUGINS": ""}, "active"),
        ([], {"INFER_PLUGINS": ""}, "disabled"),
        ([], {"INFER_DISABLE_PLUGIN_AUTOLOAD": "1"}, "disabled"),
        (["--plugin", "mine"], {"INFER_DISABLE_PLUGIN_AUTOLOAD": "1"}, "active"),
        ([], {"INFER_DISABLE_PLUGIN_AUTOLOAD": "0"}, "active"),
    ],
)
def test_flags_and_variables_decide_who_is_active(
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    variables: dict[str, str],
    state: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert row(run(capsys, *flags), "mine", "2.5", state)
