"""Engine flags, shared by every command that starts an engine."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

from infer.cli.activation import activation_of
from infer.config.engine import DTYPES, EngineConfig


@dataclass(frozen=True)
class _Flag:
    """A flag that sets the field of EngineConfig with its name. kind None: on or off."""

    name: str
    kind: type | None
    help: str
    metavar: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


FLAGS = (
    _Flag("revision", str, "of the model at its source", "REV"),
    _Flag("load_format", str, "weight format, or auto", "NAME"),
    _Flag("quantization", str, "how the weights are stored, if the files do not say", "NAME"),
    _Flag("trust_remote_code", None, "accepted; infer runs no code of model folders"),
    _Flag("dtype", str, f"{', '.join(DTYPES)}", "DTYPE"),
    _Flag("kv_cache_dtype", str, "of keys and values", "DTYPE"),
    _Flag("max_model_len", int, "tokens of prompt and answer", "N"),
    _Flag("max_num_seqs", int, "answers that run at once", "N"),
    _Flag("max_num_batched_tokens", int, "tokens of one step", "N"),
    _Flag("kv_cache_memory_bytes", int, "size of the KV cache", "BYTES"),
    _Flag("gpu_memory_utilization", float, "share of the memory to use", "SHARE"),
    _Flag("block_size", int, "tokens of one KV block", "N"),
    _Flag("device", str, "platform, e.g. cpu or cuda", "NAME"),
    _Flag("attention_backend", str, "provider of attention", "NAME"),
    _Flag("linear_kernel", str, "provider of linear layers", "NAME"),
    _Flag("sampler", str, "provider of sampling", "NAME"),
    _Flag("scheduling_policy", str, "who is served first", "NAME"),
    _Flag("distributed_executor_backend", str, "how workers are run", "NAME"),
    _Flag("selection", str, "how providers are chosen", "HOW"),
    _Flag("deterministic", None, "answers never depend on what else is in the batch"),
    _Flag("seed", int, "makes requests without a seed reproducible", "N"),
    _Flag("cpu_threads", int, "compute threads", "N"),
    _Flag("max_logprobs", int, "alternatives a request may ask for", "N"),
    _Flag("chat_template", str, "a template file, or the template itself", "FILE"),
)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the engine's flags; what is not given keeps EngineConfig's default."""
    group = parser.add_argument_group("engine")
    for flag in FLAGS:
        if flag.kind is None:
            group.add_argument(flag.flag, action="store_true", default=None, help=flag.help)
        else:
            group.add_argument(flag.flag, type=flag.kind, metavar=flag.metavar, help=flag.help)
    group.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="reuse keys and values of equal beginnings (on)",
    )
    group.add_argument(
        "--served-model-name", nargs="+", metavar="NAME", help="what clients call the model"
    )
    group.add_argument(
        "--override-generation-config",
        type=_json_object,
        metavar="JSON",
        help="replaces values of generation_config.json",
    )
    group.add_argument("--config", metavar="FILE", help="YAML with flags as keys; flags win")


def engine_config(args: argparse.Namespace) -> EngineConfig:
    """Return the configuration of parsed flags. Raises UserError for a value that can't be."""
    names = [flag.name for flag in FLAGS]
    names += ["enable_prefix_caching", "override_generation_config"]
    values = {name: given for name in names if (given := getattr(args, name)) is not None}
    return EngineConfig(
        model=args.model,
        served_model_names=tuple(args.served_model_name or ()),
        plugins=activation_of(args),
        **values,
    )


def engine_flags(args: argparse.Namespace) -> list[str]:
    """Return the flags that were given, also by a file, to start the same engine again."""
    words: list[str] = []
    for flag in FLAGS:
        given = getattr(args, flag.name)
        if given is not None:
            words += [flag.flag] if flag.kind is None else [flag.flag, str(given)]
    if args.enable_prefix_caching is not None:
        prefix = "--" if args.enable_prefix_caching else "--no-"
        words.append(prefix + "enable-prefix-caching")
    if args.served_model_name:
        words += ["--served-model-name", *args.served_model_name]
    if args.override_generation_config is not None:
        words += ["--override-generation-config", json.dumps(args.override_generation_config)]
    return words


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return value
