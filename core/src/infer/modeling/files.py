"""From the name a user types to everything the engine must know of the model's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infer_plugin_api.descriptors import ModelSourceDescriptor, WeightFormatDescriptor
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ResolvedModel, SourceContext
from infer_plugin_api.weights import WeightFormat

from infer.config.engine import EngineConfig
from infer.config.environment import env_flag
from infer.config.errors import UserError
from infer.config.paths import cache_dir
from infer.plugins.registry import Registered, Registry
from infer.text.gguf import read_head
from infer.text.gguf_tokenizer import convert
from infer.text.tokenizer import read_json


@dataclass(frozen=True)
class ModelFiles:
    """A model that was found.

    path: folder or file with the weights. tokenizer_dir: folder with tokenizer.json.
    config: Hugging Face style. generation_config: with the operator's overrides.
    fingerprint: changes with the files. weight_format: ``plugin:name`` of the format.
    eos_token_ids: ids that end an answer, by the model's own configuration.
    """

    name: str
    path: Path
    tokenizer_dir: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]
    fingerprint: str
    weight_format: str
    eos_token_ids: tuple[int, ...]

    @property
    def architecture(self) -> str:
        return str((self.config.get("architectures") or ["none"])[0])


def find_model(
    config: EngineConfig, registry: Registry, announce: Callable[[str], None]
) -> ModelFiles:
    """Ask the model sources for ``config.model`` and read what the files say of themselves.

    Raises ModelError or UserError in one line: unknown name, missing or broken files, an
    architecture that no plugin serves.
    """
    resolved = _resolve(config, registry, announce)
    weight_format = _weight_format(config.load_format, resolved.path, registry)
    format_reader: WeightFormat = registry.load(weight_format)()
    folder = resolved.path if resolved.path.is_dir() else resolved.path.parent
    model_config = format_reader.config(resolved.path) or _config_of(folder)
    _check_served(model_config, registry, config.trust_remote_code)
    generation = {} if resolved.path.is_file() else read_json(folder / "generation_config.json")
    return ModelFiles(
        name=resolved.name,
        path=resolved.path,
        tokenizer_dir=_tokenizer_dir(resolved),
        config=model_config,
        generation_config=generation | config.override_generation_config,
        fingerprint=resolved.fingerprint,
        weight_format=weight_format.qualified,
        eos_token_ids=_eos_ids(generation, model_config),
    )


def _resolve(
    config: EngineConfig, registry: Registry, announce: Callable[[str], None]
) -> ResolvedModel:
    name = config.model or _default_model(registry)
    context = SourceContext(
        cache_dir=cache_dir(),
        offline=env_flag("INFER_OFFLINE") or env_flag("HF_HUB_OFFLINE"),
        revision=config.revision,
        announce=announce,
    )
    for source in registry.providers("model_source"):
        found: ResolvedModel | None = registry.load(source)().resolve(name, context)
        if found is not None:
            return found
    sources = ", ".join(source.qualified for source in registry.providers("model_source"))
    raise UserError(
        f"no model {name!r}: it is no local folder or .gguf file, and none of the model sources "
        f"knows it ({sources})"
    )


def _default_model(registry: Registry) -> str:
    for source in registry.providers("model_source"):
        descriptor = source.descriptor
        if isinstance(descriptor, ModelSourceDescriptor) and descriptor.default_model:
            return descriptor.default_model
    raise UserError(
        "no model given and no installed plugin has a default one; "
        "name a model folder, or pip install infer-smollm2"
    )


def _weight_format(wanted: str, path: Path, registry: Registry) -> Registered:
    if wanted != "auto":
        return registry.find("weight_format", wanted)
    names = [path.name] if path.is_file() else [item.name for item in path.iterdir()]
    for candidate in registry.providers("weight_format"):
        descriptor = candidate.descriptor
        assert isinstance(descriptor, WeightFormatDescriptor)
        if any(name.endswith(suffix) for suffix in descriptor.suffixes for name in names):
            return candidate
    suffixes = sorted(
        suffix
        for candidate in registry.providers("weight_format")
        for suffix in getattr(candidate.descriptor, "suffixes", ())
    )
    raise ModelError(f"{path} has no weights; looked for files ending in {', '.join(suffixes)}")


def _config_of(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; it is no Hugging Face model folder")
    return read_json(folder / "config.json")


def _check_served(config: Mapping[str, Any], registry: Registry, trusted: bool) -> None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise ModelError("config.json names no architectures, so it says not what the model is")
    if registry.architecture(str(names[0])) is not None:
        return
    served = sorted(
        name
        for candidate in registry.providers("architecture")
        for name in getattr(candidate.descriptor, "architectures", ())
    )
    remote = ""
    if "auto_map" in config:
        remote = (
            "; its folder brings code of its own, which infer does not run"
            + ("" if trusted else " (--trust-remote-code is not given)")
            + ", a plugin could serve it"
        )
    raise ModelError(
        f"the architecture {names[0]!r} is not supported; supported: {', '.join(served)}{remote}"
    )


def _tokenizer_dir(resolved: ResolvedModel) -> Path:
    if resolved.path.is_dir():
        gguf = sorted(resolved.path.glob("*.gguf"))
        if (resolved.path / "tokenizer.json").is_file() or not gguf:
            return resolved.path
        raise ModelError(f"{resolved.path} is a folder of GGUF files; name one, e.g. {gguf[0]}")
    target = cache_dir() / "tokenizers" / resolved.fingerprint[:32]
    return convert(read_head(resolved.path).metadata, target)


def _eos_ids(generation: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    """The generation config's ids, else the config's; either may be one id or a list."""
    for source in (generation, config):
        ids = source.get("eos_token_id")
        if ids is not None:
            return tuple(ids) if isinstance(ids, list) else (int(ids),)
    return ()


def announce_on_stderr(line: str) -> None:
    """The usual ``announce``: one line for the user before a download begins."""
    os.write(2, f"infer: {line}\n".encode())
