"""Rotary embedding fields, in the spellings of transformers 4 and 5."""

from __future__ import annotations

from infer.modeling.families.hf_config import HFConfig
from infer_plugin_api.errors import ModelError
from infer_plugin_api.models import RopeSpec

_DEFAULT_THETA = 10000.0
_REQUIRED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
}
_YARN_OPTIONAL = ("attention_factor", "beta_fast", "beta_slow")


def rope_spec(config: HFConfig, head_size: int) -> RopeSpec:
    """Read ``rope_parameters``, or ``rope_theta`` with ``rope_scaling``.

    Raises ModelError for a rope type other than default, linear, llama3 and yarn.
    """
    given = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    fields = config.part(given)
    if "full_attention" in fields.names() or "sliding_attention" in fields.names():
        raise ModelError(
            f"config.json: {given} differs by layer type, which this model family does not support"
        )
    kind = str(fields.get("rope_type") or fields.get("type") or "default")
    if kind not in _REQUIRED:
        raise ModelError(
            f"config.json: {given} has rope_type {kind!r}, expected one of {', '.join(_REQUIRED)}"
        )
    positions = config.integer("max_position_embeddings")
    parameters = {name: fields.number(name) for name in _REQUIRED[kind]}
    if kind in ("llama3", "yarn"):
        # Some families keep the original length beside the rope fields; it has the last word.
        inner = fields.integer("original_max_position_embeddings", positions)
        original = config.integer("original_max_position_embeddings", inner)
        parameters["original_max_position_embeddings"] = float(original)
        if kind == "yarn":
            parameters |= _yarn(fields, positions, original)
            positions = max(positions, int(original * parameters["factor"]))
    theta = fields.number("rope_theta", config.number("rope_theta", _DEFAULT_THETA))
    share = fields.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    return RopeSpec(
        theta=theta,
        rotary_size=int(head_size * share),
        max_positions=positions,
        scaling=kind,
        parameters=tuple(sorted(parameters.items())),
    )


def _yarn(fields: HFConfig, positions: int, original: int) -> dict[str, float]:
    found = {"factor": fields.number("factor", positions / original)}
    for name in _YARN_OPTIONAL:
        if fields.get(name):
            found[name] = fields.number(name)
    if fields.get("mscale") and fields.get("mscale_all_dim"):
        found |= {name: fields.number(name) for name in ("mscale", "mscale_all_dim")}
    found["truncate"] = float(fields.flag("truncate", True))
    return found
