"""The flags that say which plugins are active; every command that loads plugins has them."""

from __future__ import annotations

import argparse

from infer.config.plugins import PluginActivation, split_names


def add_plugin_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--plugin``, ``--only-plugins``, ``--disable-plugin`` and ``--strict-plugins``."""
    group = parser.add_argument_group("plugins")
    group.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="activate it even if it is opt-in, and fail if it fails; repeatable",
    )
    group.add_argument(
        "--only-plugins",
        metavar="A,B",
        help="the whole set besides builtin; an empty text means none (INFER_PLUGINS)",
    )
    group.add_argument(
        "--disable-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="leave it out, whatever else names it; repeatable",
    )
    group.add_argument(
        "--strict-plugins",
        action="store_true",
        help="fail if any plugin fails (INFER_STRICT_PLUGINS=1)",
    )


def activation_of(args: argparse.Namespace) -> PluginActivation:
    """Return what the environment and the parsed flags say. Raises UserError for a bad variable."""
    return PluginActivation.from_environment().merged(
        enable=[name for text in args.plugin for name in split_names(text)],
        only=None if args.only_plugins is None else split_names(args.only_plugins),
        disable=[name for text in args.disable_plugin for name in split_names(text)],
        strict=args.strict_plugins,
    )


def activation_flags(args: argparse.Namespace) -> list[str]:
    """Return the plugin flags that were given, to start another command with the same plugins."""
    words = [word for name in args.plugin for word in ("--plugin", name)]
    if args.only_plugins is not None:
        words += ["--only-plugins", args.only_plugins]
    words += [word for name in args.disable_plugin for word in ("--disable-plugin", name)]
    return [*words, "--strict-plugins"] if args.strict_plugins else words
