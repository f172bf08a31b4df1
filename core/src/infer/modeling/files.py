"""From the name a user types to everything the engine must know of the model's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infer.config.engine import EngineConfig
from infer.config.environment import env_flag
from infer.config.errors import UserError
from infer.config.paths import cache_dir
from infer.modeling.end_tokens import end_token_ids
from infer.plugins.registry import Registered, Registry
from infer.text.gguf import read_head
from infer.text.gguf_tokenizer import convert, tokenizer_folder
from infer.text.tokenizer import read_json
from infer_plugin_api.descriptors import ModelSourceDescriptor
from infer_plugin_api.errors import ModelError, PluginApiError
from infer_plugin_api.sources import ResolvedModel, SourceContext
from infer_plugin_api.weights import WeightFormat

Announce = Callable[[str], None]


@dataclass(frozen=True)
class ModelFiles:
    """A model that was found.

    path: folder or file with the weights. tokenizer_dir: folder with tokenizer.json.
    config: Hugging Face style. generation_config: with the operator's overrides.
    fingerprint: changes with the files. weight_format: ``plugin:name`` of the format.
    eos_token_ids: ids that end an answer, by the model's own configuration; the tokenizer's
    end token comes on top of them.
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


def find_model(config: EngineConfig, registry: Registry, announce: Announce) -> ModelFiles:
    """Ask the model sources for ``config.model`` and read what the files say of themselves.

    Raises ModelError or UserError in one line: unknown name, missing or broken files, an
    architecture that no plugin serves.
    """
    resolved = _resolve(config, registry, announce)
    weight_format = _weight_format(config.load_format, resolved.path, registry)
    model_config = _config(weight_format, resolved.path, registry)
    _check_served(model_config, registry, config.trust_remote_code)
    generation = _generation_config(resolved.path) | config.override_generation_config
    return ModelFiles(
        name=resolved.name,
        path=resolved.path,
        tokenizer_dir=_tokenizer_dir(resolved),
        config=model_config,
        generation_config=generation,
        fingerprint=resolved.fingerprint,
        weight_format=weight_format.qualified,
        eos_token_ids=end_token_ids(generation, model_config),
    )


def announce_on_stderr(line: str) -> None:
    """The usual ``announce``: one line for the user before a download begins."""
    os.write(2, f"infer: {line}\n".encode())


def _resolve(config: EngineConfig, registry: Registry, announce: Announce) -> ResolvedModel:
    context = SourceContext(
        cache_dir=cache_dir(),
        offline=env_flag("INFER_OFFLINE") or env_flag("HF_HUB_OFFLINE"),
        revision=config.revision,
        announce=announce,
    )
    name, sources = config.model, registry.providers("model_source")
    if not name:
        # Only its own source is asked: a folder of that name must not take its place.
        name, sources = _default(sources)
    skipped = []
    for source in sources:
        if lack := registry.missing(source):
            skipped.append(f"{source.qualified} ({lack})")
            continue
        found = _ask(source, registry, name, context)
        if found is not None:
            return found
    asked = ", ".join(source.qualified for source in sources) or "there are none"
    raise UserError(
        f"no model {name!r}: it is no local folder or .gguf file, and none of the model sources "
        f"knows it ({asked})" + (f"; not asked: {', '.join(skipped)}" if skipped else "")
    )


def _default(sources: tuple[Registered, ...]) -> tuple[str, tuple[Registered, ...]]:
    for source in sources:
        descriptor = source.descriptor
        if isinstance(descriptor, ModelSourceDescriptor) and descriptor.default_model:
            return descriptor.default_model, (source,)
    raise UserError(
        "no model given and no installed plugin has a default one; "
        "name a model folder, or pip install infer-smollm2"
    )


def _ask(
    source: Registered, registry: Registry, name: str, context: SourceContext
) -> ResolvedModel | None:
    try:
        found: ResolvedModel | None = registry.load(source)().resolve(name, context)
    except (UserError, PluginApiError):
        raise
    except Exception as error:
        raise _plugin_fault(source, registry, f"looked for {name!r}", error) from error
    return found


def _plugin_fault(
    provider: Registered, registry: Registry, what: str, error: Exception
) -> ModelError:
    origin = registry.record(provider.plugin).origin
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return ModelError(
        f"{origin}: {provider.descriptor.slot} {provider.name!r} failed when it {what}: "
        f"{reason}; --disable-plugin {provider.plugin} leaves it out"
    )


def _weight_format(wanted: str, path: Path, registry: Registry) -> Registered:
    formats = registry.providers("weight_format")
    if wanted != "auto":
        chosen = registry.find("weight_format", wanted)
    else:
        names = [path.name] if path.is_file() else [item.name for item in path.iterdir()]
        fitting = [item for item in formats if _reads(item, names)]
        if not fitting:
            raise _no_weights(path, formats)
        chosen = fitting[0]
    if lack := registry.missing(chosen):
        raise UserError(f"the weight format {chosen.qualified} can't be used: {lack}")
    return chosen


def _reads(candidate: Registered, names: list[str]) -> bool:
    suffixes = getattr(candidate.descriptor, "suffixes", ())
    return any(name.endswith(suffix) for suffix in suffixes for name in names)


def _no_weights(path: Path, formats: tuple[Registered, ...]) -> ModelError:
    suffixes = {suffix for item in formats for suffix in getattr(item.descriptor, "suffixes", ())}
    pickles = path.is_dir() and any(path.glob("*.bin"))
    return ModelError(
        f"{path} has no weights; looked for files ending in {', '.join(sorted(suffixes))}"
        + ("; .bin files may run code when read, convert them to safetensors" if pickles else "")
    )


def _config(weight_format: Registered, path: Path, registry: Registry) -> dict[str, Any]:
    """Return the config that the weights carry, else that of the folder."""
    reader: WeightFormat = registry.load(weight_format)()
    try:
        carried = reader.config(path)
    except (UserError, PluginApiError):
        raise
    except Exception as error:
        raise _plugin_fault(weight_format, registry, f"read {path}", error) from error
    if carried is not None:
        return carried
    file = (path if path.is_dir() else path.parent) / "config.json"
    if not file.is_file():
        raise ModelError(f"{file.parent} has no config.json; it is no Hugging Face model folder")
    return read_json(file)


def _generation_config(path: Path) -> dict[str, Any]:
    """A file may lie among others that are not its own, so only a folder's counts."""
    return read_json(path / "generation_config.json") if path.is_dir() else {}


def _check_served(config: Mapping[str, Any], registry: Registry, trusted: bool) -> None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise ModelError("config.json names no architectures, so what the model is can't be told")
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
            "; the folder's own code (auto_map) was not run: "
            + ("no installed plugin runs such code" if trusted else "")
            + ("" if trusted else "--trust-remote-code is not given")
        )
    raise ModelError(
        f"the architecture {names[0]!r} is not supported; supported: {', '.join(served)}{remote}"
    )


def _tokenizer_dir(resolved: ResolvedModel) -> Path:
    if resolved.path.is_dir():
        return resolved.path
    folder = tokenizer_folder(cache_dir(), resolved.fingerprint)
    return folder if folder.is_dir() else convert(read_head(resolved.path).metadata, folder)
