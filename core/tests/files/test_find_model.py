"""From a name to a model's files, and one line for everything that may be wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.modeling.files import ModelFiles, find_model
from infer.plugins.discovery import load_plugins
from infer.plugins.registry import Registry
from infer.text.tokenizer import Tokenizer
from infer_plugin_api import API_VERSION, ModelSourceDescriptor, PluginInfo, hookimpl
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext
from infer_plugin_api.weights import WeightFormat
from tests.chain_model import chain_model

from .gguf_files import GGUFWriter, weights


def found(name: Path | str, registry: Registry, **config: Any) -> ModelFiles:
    return find_model(EngineConfig(model=str(name), **config), registry, pytest.fail)


def edit(folder: Path, file: str, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    path = folder / file
    fields = json.loads(path.read_text()) | changes
    path.write_text(
        json.dumps({name: value for name, value in fields.items() if value is not None})
    )


def refused(name: Path | str, registry: Registry, **config: Any) -> str:
    with pytest.raises((ModelError, UserError)) as caught:
        found(name, registry, **config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_says_everything_of_itself(model: Path, registry: Registry) -> None:
    files = found(model, registry)
    assert (files.name, files.path, files.tokenizer_dir) == ("eosinside", model, model)
    assert files.weight_format == "builtin:safetensors"
    assert files.architecture == "LlamaForCausalLM"
    assert files.config == json.loads((model / "config.json").read_text())
    assert files.generation_config == {"eos_token_id": [256, 263]}


def test_a_gguf_file_says_everything_of_itself(smollm2_path: Path, registry: Registry) -> None:
    files = found(smollm2_path, registry)
    assert files.name == "SmolLM2-135M-Instruct.Q4_1"
    assert files.weight_format == "builtin:gguf"
    assert files.config["num_hidden_layers"] == 30
    assert files.eos_token_ids == (2,)
    assert Tokenizer.load(files.tokenizer_dir).encode("Hello") == [19556]
    assert found(smollm2_path, registry) == files


def test_files_beside_a_gguf_file_are_not_its_own(
    smollm2_path: Path, registry: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.symlink_to(smollm2_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    (tmp_path / "config.json").write_text("{")
    assert found(path, registry).eos_token_ids == (2,)


EOS = [256, 263]


@pytest.mark.parametrize(
    ("config", "generation", "override", "expected"),
    [
        (EOS, EOS, {}, (256, 263)),
        (EOS, EOS, {"temperature": 0}, (256, 263)),
        (EOS, None, {}, (256, 263)),
        (None, EOS, {}, (256, 263)),
        (256, EOS, {}, (256, 263)),
        (EOS, 256, {}, (256,)),
        (263, None, {}, (263,)),
        (None, None, {}, ()),
        (EOS, EOS, {"eos_token_id": 7}, (7,)),
        ([263, 263, 256], None, {}, (263, 256)),
    ],
)
def test_end_tokens_come_from_the_generation_config_else_the_config(
    model: Path,
    registry: Registry,
    config: Any,
    generation: Any,
    override: dict[str, object],
    expected: tuple[int, ...],
) -> None:
    """LOAD-07 (a), (b), (d), (e); a file that lacks the field leaves it to the next."""
    edit(model, "config.json", eos_token_id=config)
    edit(model, "generation_config.json", eos_token_id=generation)
    assert found(model, registry, override_generation_config=override).eos_token_ids == expected
    assert Tokenizer.load(model).eos_ids == (256,)


@pytest.mark.parametrize("value", ["</s>", -1, [1, None], True, {}, 1.5])
def test_end_tokens_that_are_no_ids_are_refused_by_file(
    model: Path, registry: Registry, value: Any
) -> None:
    edit(model, "generation_config.json", eos_token_id=value)
    assert "generation_config.json: eos_token_id is" in refused(model, registry)


def test_overrides_of_the_operator_win_over_the_file(model: Path, registry: Registry) -> None:
    edit(model, "generation_config.json", temperature=0.6, top_p=0.9)
    files = found(model, registry, override_generation_config={"temperature": 0})
    assert files.generation_config == {"temperature": 0, "top_p": 0.9, "eos_token_id": EOS}


def test_a_model_without_a_generation_config_has_an_empty_one(
    model: Path, registry: Registry
) -> None:
    (model / "generation_config.json").unlink()
    files = found(model, registry)
    assert (files.generation_config, files.eos_token_ids) == ({}, (256, 263))


CODE = "from pathlib import Path\nPath({!r}).write_text('ran')\n"


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("place", ["config.json", "tokenizer_config.json"])
def test_code_of_the_folder_is_never_run(
    model: Path, registry: Registry, tmp_path: Path, place: str, trusted: bool
) -> None:
    """LOAD-11: auto_map beside an architecture that core serves is not looked at."""
    marker = tmp_path / "marker"
    (model / "modeling_evil.py").write_text(CODE.format(str(marker)))
    auto_map = dict.fromkeys(("AutoConfig", "AutoTokenizer"), "modeling_evil.Evil")
    edit(model, place, auto_map=auto_map, vision_config={"auto_map": auto_map})
    (model / "processor_config.json").write_text(json.dumps({"auto_map": auto_map}))
    Tokenizer.load(found(model, registry, trust_remote_code=trusted).tokenizer_dir)
    assert not marker.exists()


@pytest.mark.parametrize("trusted", [False, True])
def test_an_architecture_that_only_the_folder_knows_is_refused(
    model: Path, registry: Registry, tmp_path: Path, trusted: bool
) -> None:
    """LOAD-11"""
    marker = tmp_path / "marker"
    (model / "modeling_evil.py").write_text(CODE.format(str(marker)))
    auto_map = {"AutoModelForCausalLM": "modeling_evil.Evil"}
    edit(model, "config.json", architectures=["EvilForCausalLM"], auto_map=auto_map)
    told = refused(model, registry, trust_remote_code=trusted)
    assert "'EvilForCausalLM' is not supported; supported: LlamaForCausalLM" in told
    why = "no installed plugin runs such code" if trusted else "--trust-remote-code is not given"
    assert why in told
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "config.json can't be read as JSON"),
        ('{"a": ', "config.json can't be read as JSON"),
        ("[" * 100_000, "config.json can't be read as JSON"),
        ("[]", "config.json must hold a JSON object, not list"),
        ("{}", "config.json names no architectures"),
        ('{"architectures": "LlamaForCausalLM"}', "config.json names no architectures"),
        ('{"architectures": []}', "config.json names no architectures"),
        ('{"architectures": ["BertModel"]}', "'BertModel' is not supported; supported: Llama"),
    ],
)
def test_a_broken_config_is_one_line(
    model: Path, registry: Registry, content: str, fault: str
) -> None:
    (model / "config.json").write_text(content)
    assert fault in refused(model, registry)


def test_a_config_in_another_encoding_is_one_line(model: Path, registry: Registry) -> None:
    (model / "config.json").write_bytes("{}".encode("utf-16"))
    assert "config.json can't be read as JSON" in refused(model, registry)


def test_a_folder_without_a_config_is_refused(model: Path, registry: Registry) -> None:
    (model / "config.json").unlink()
    assert "has no config.json; it is no Hugging Face model folder" in refused(model, registry)


def test_a_folder_without_weights_says_what_was_looked_for(model: Path, registry: Registry) -> None:
    (model / "model.safetensors").unlink()
    assert "has no weights; looked for files ending in .gguf, .safetensors" in refused(
        model, registry
    )
    (model / "pytorch_model.bin").write_bytes(b"")
    assert ".bin files may run code when read, convert them" in refused(model, registry)


def test_the_load_format_may_be_chosen(model: Path, registry: Registry) -> None:
    assert found(model, registry, load_format="dummy").weight_format == "builtin:dummy"
    assert found(model, registry, load_format="builtin:dummy").weight_format == "builtin:dummy"
    (model / "model.safetensors").unlink()
    assert found(model, registry, load_format="dummy").weight_format == "builtin:dummy"
    assert "unknown weight format 'pickle'" in refused(model, registry, load_format="pickle")


def test_an_unknown_name_lists_who_was_asked(registry: Registry) -> None:
    told = refused("nonesuch", registry)
    assert "no model 'nonesuch'" in told
    assert "builtin:local" in told
    assert "builtin:hub" in told


def test_without_a_default_model_the_error_says_what_to_install() -> None:
    bare = load_plugins(PluginActivation(only=()))
    assert "pip install infer-smollm2" in refused("", bare)


def test_a_gguf_file_of_another_architecture_is_refused(
    gguf_file: GGUFWriter, registry: Registry
) -> None:
    path = gguf_file({}, kind="mamba")
    assert "architecture 'mamba'; known in GGUF: llama, qwen2, qwen3" in refused(path, registry)


def test_a_gguf_file_without_a_tokenizer_is_refused(
    gguf_file: GGUFWriter, registry: Registry
) -> None:
    assert "the tokenizer None (tokenizer.ggml.model)" in refused(gguf_file(weights()), registry)


class OwnSource(ModelSource):
    """A third party's source with a default model."""

    folder = Path()

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        if name != "own":
            return None
        return ResolvedModel(name="own", path=self.folder, fingerprint="f" * 64)


class BrokenSource(ModelSource):
    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        raise RuntimeError("the disk\nis on fire")


class Plugin:
    """A plugin object with one model source."""

    infer_plugin = PluginInfo(api_version=API_VERSION)

    def __init__(self, **descriptor: Any) -> None:
        self.descriptor = ModelSourceDescriptor(**descriptor)

    @hookimpl
    def infer_model_sources(self) -> list[ModelSourceDescriptor]:
        return [self.descriptor]


def with_source(**descriptor: Any) -> Registry:
    """Return the registry with one more source, in place of all installed plugins."""
    return load_plugins(PluginActivation(only=(), extra=(Plugin(**descriptor),)))


def test_no_name_means_the_default_model_whatever_lies_in_the_working_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnSource, "folder", model)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    registry = with_source(
        name="own", implementation=f"{__name__}:OwnSource", default_model="own", priority=5
    )
    assert found("", registry).path == model


def test_a_source_that_fails_is_named_with_the_way_around_it(model: Path) -> None:
    registry = with_source(name="broken", implementation=f"{__name__}:BrokenSource", priority=1000)
    told = refused(model, registry)
    assert "model_source 'broken' failed when it looked for" in told
    assert "RuntimeError: the disk is on fire" in told
    assert "--disable-plugin" in told


def test_a_source_that_lacks_a_module_is_passed_over_and_named(model: Path) -> None:
    registry = with_source(
        name="lacking",
        implementation=f"{__name__}:BrokenSource",
        priority=1000,
        requires_modules=("no_such_module",),
        install_hint="pip install no-such-module",
    )
    assert found(model, registry).path == model
    assert "pip install no-such-module" in refused("nonesuch", registry)


def test_a_format_that_fails_is_named(
    model: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: WeightFormat, path: Path) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("infer.modeling.providers.dummy_format.DummyFormat.config", fail)
    told = refused(model, registry, load_format="dummy")
    assert "plugin 'builtin'" in told
    assert "ZeroDivisionError: division by zero" in told


def test_finding_a_model_imports_no_torch(smollm2_path: Path, tmp_path: Path) -> None:
    folder = chain_model("coin", tmp_path)
    code = (
        "import sys\n"
        "from infer.config.engine import EngineConfig\n"
        "from infer.config.plugins import PluginActivation\n"
        "from infer.modeling.files import find_model\n"
        "from infer.plugins.discovery import load_plugins\n"
        "registry = load_plugins(PluginActivation())\n"
        f"for model in {[str(folder), str(smollm2_path)]}:\n"
        "    find_model(EngineConfig(model=model), registry, print)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
