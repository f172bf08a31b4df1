"""Engine flags and the file of --config."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from infer.cli import bench
from infer.cli.activation import activation_flags, activation_of, add_plugin_arguments
from infer.cli.arguments import FLAGS, add_engine_arguments, engine_config, engine_flags
from infer.cli.parser import CommandParser
from infer.cli.serve import add_arguments, server_settings
from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.server.settings import ServerSettings

EVERY_FLAG = [
    *("--revision", "v1", "--load-format", "gguf", "--quantization", "none"),
    *("--trust-remote-code", "--dtype", "float32", "--kv-cache-dtype", "float16"),
    *("--max-model-len", "100", "--max-num-seqs", "3", "--max-num-batched-tokens", "7"),
    *("--kv-cache-memory-bytes", "4096", "--gpu-memory-utilization", "0.5", "--block-size", "8"),
    *("--device", "cpu", "--attention-backend", "a", "--linear-kernel", "b", "--sampler", "c"),
    *("--scheduling-policy", "d", "--distributed-executor-backend", "e"),
    *("--selection", "priority", "--deterministic", "--seed", "5", "--cpu-threads", "2"),
    *("--max-logprobs", "4", "--chat-template", "{{ a }}", "--no-enable-prefix-caching"),
    *("--served-model-name", "x", "y z", "--override-generation-config", '{"top_p": 0.5}'),
]
PLUGIN_FLAGS = [
    *("--plugin", "p", "--plugin", "q", "--only-plugins", "r,s"),
    *("--disable-plugin", "t", "--strict-plugins"),
]


def parsed(*words: str) -> argparse.Namespace:
    parser = CommandParser()
    parser.add_argument("model", nargs="?", default="")
    add_engine_arguments(parser)
    add_plugin_arguments(parser)
    return parser.parse_args(words)


def from_file(tmp_path: Path, text: str, *words: str) -> EngineConfig:
    path = tmp_path / "engine.yaml"
    path.write_text(text)
    return engine_config(parsed("--config", str(path), *words))


def test_no_flag_is_the_default_configuration() -> None:
    config = engine_config(parsed())
    assert config == EngineConfig(plugins=config.plugins)
    assert engine_flags(parsed()) == []


def test_every_flag_reaches_the_configuration() -> None:
    args = parsed("m", *EVERY_FLAG)
    config, default = engine_config(args), EngineConfig()
    unchanged = [f.name for f in FLAGS if getattr(config, f.name) == getattr(default, f.name)]
    assert unchanged == ["selection"]  # it has one value
    assert not config.enable_prefix_caching
    assert config.served_model_names == ("x", "y z")
    assert config.override_generation_config == {"top_p": 0.5}


def test_another_command_can_be_given_the_same_flags(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text("revision: v2\nblock-size: 32\n")
    args = parsed(*EVERY_FLAG[2:], *PLUGIN_FLAGS, "--config", str(file))
    again = parsed(*engine_flags(args), *activation_flags(args))
    assert engine_config(again) == engine_config(args)
    assert engine_config(again).revision == "v2"
    assert activation_of(again) == activation_of(args)
    assert activation_flags(parsed("--only-plugins", "")) == ["--only-plugins", ""]


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    text = "model: m\nmax-num-seqs: 3\nmax_logprobs: 0\nserved-model-name: [a, b]\n"
    config = from_file(tmp_path, text, "--max-num-seqs", "4", "--served-model-name", "c")
    assert (config.model, config.max_num_seqs, config.max_logprobs) == ("m", 4, 0)
    assert config.served_model_names == ("c",)
    assert from_file(tmp_path, text).served_model_names == ("a", "b")
    assert from_file(tmp_path, text, "other").model == "other"


def test_every_engine_flag_is_a_key_of_the_file(tmp_path: Path) -> None:
    args = parsed(*EVERY_FLAG, *PLUGIN_FLAGS)
    names = [*(flag.name for flag in FLAGS), "enable_prefix_caching", "served_model_name"]
    names += ["override_generation_config", "plugin", "only_plugins", "disable_plugin"]
    values = {name: getattr(args, name) for name in [*names, "strict_plugins"]}
    config = from_file(tmp_path, json.dumps(values | {"model": "m"}))
    assert config == engine_config(parsed("m", *EVERY_FLAG, *PLUGIN_FLAGS))


def serve_settings(tmp_path: Path, text: str, *words: str) -> ServerSettings:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    parser = CommandParser()
    add_arguments(parser)
    return server_settings(parser.parse_args(["--config", str(path), *words]))


def test_the_file_may_say_where_and_for_whom_to_serve(tmp_path: Path) -> None:
    text = "host: 0.0.0.0\nport: 9000\napi-key: [k]\ndrain-timeout: 5\npublic-metrics: true\n"
    settings = serve_settings(tmp_path, text + "allowed-origins: ['*']\n", "--port", "9001")
    assert (settings.host, settings.port, settings.drain_timeout) == ("0.0.0.0", 9001, 5)
    assert settings.public_metrics
    assert settings.allowed_origins == ("*",)
    assert settings == serve_settings(
        tmp_path,
        "",
        *("--host", "0.0.0.0", "--port", "9001", "--drain-timeout", "5", "--api-key", "k"),
        *("--public-metrics", "--allowed-origins", "*"),
    )
    with pytest.raises(UserError, match=r"log-level is 'loud', expected one of .*info"):
        serve_settings(tmp_path, "log-level: loud")


def test_a_file_is_read_below_a_subcommand(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text("runs: 7\nmodel: m\n")
    parser = CommandParser()
    bench.add_arguments(parser)
    args = parser.parse_args(["startup", "--config", str(path), "--port", "1"])
    assert (args.runs, args.port, args.model) == (7, 1, "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-num-seq: 3", r"unknown key 'max-num-seq'; did you mean 'max-num-seqs'"),
        ("max-num-seqs: many", r"max-num-seqs is 'many', expected a whole number"),
        ("max-num-seqs: true", r"max-num-seqs is True, expected a whole number"),
        ("max-num-seqs: 1.5", r"max-num-seqs is 1.5, expected a whole number"),
        ("gpu-memory-utilization: much", r"is 'much', expected a number"),
        ("deterministic: 'yes'", r"deterministic is 'yes', expected true or false"),
        ("dtype: 32", r"dtype is 32, expected a text"),
        ("served-model-name: a", r"is 'a', expected a list of texts"),
        ("override-generation-config: 1", r"is 1, expected keys and values"),
        ("- a", r"must hold keys and values"),
        ("a: [", r"can't be read"),
    ],
)
def test_a_bad_file_is_named_with_what_was_expected(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as error:
        from_file(tmp_path, text)
    assert "engine.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_whole_number_is_a_share(tmp_path: Path) -> None:
    assert from_file(tmp_path, "gpu-memory-utilization: 1").gpu_memory_utilization == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml can't be read"):
        parsed("--config", str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_an_override_that_is_no_object_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed("--override-generation-config", text)
    assert exit_.value.code == 2
    assert text in capsys.readouterr().err
