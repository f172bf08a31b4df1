"""``infer serve``: an OpenAI-compatible server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
from collections.abc import Callable

from infer.cli.activation import add_plugin_arguments
from infer.cli.arguments import add_engine_arguments, engine_config
from infer.config.errors import EngineError
from infer.server.settings import DEFAULT_MAX_BODY, DEFAULT_MAX_QUEUE, ServerSettings
from infer.telemetry import logs

SUMMARY = "answer OpenAI-compatible HTTP requests"
KEY_VARIABLE = "INFER_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default="",
        metavar="MODEL",
        help="a folder, a .gguf file, or a name that a model source knows (the embedded model)",
    )
    _address_arguments(parser.add_argument_group("address"))
    _access_arguments(parser.add_argument_group("access"))
    _limit_arguments(parser.add_argument_group("limits and logs"))
    add_engine_arguments(parser)
    add_plugin_arguments(parser)


def run(args: argparse.Namespace) -> int:
    logs.setup(args.log_level, args.log_format)
    settings, config = server_settings(args), engine_config(args)
    from infer.server.sockets import close, listen

    listener = listen(settings)
    try:
        from infer.server.lifecycle import Lifecycle

        return asyncio.run(Lifecycle(settings, config, listener, announcer(settings)).run())
    except EngineError as error:
        print(f"infer: error: {error}", file=sys.stderr)
        return 1
    finally:
        close(listener, settings)


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """Return the settings of parsed arguments. Raises UserError for values that can't be."""
    keys = args.api_key or []
    if (given := os.environ.get(KEY_VARIABLE)) is not None:
        keys = [*keys, given]
    return ServerSettings(
        host=args.host,
        port=args.port,
        uds=args.uds,
        api_keys=tuple(keys),
        public_metrics=args.public_metrics,
        allowed_origins=tuple(args.allowed_origins or ()),
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        max_queue=args.max_queue,
        max_body_size=args.max_body_size,
        request_timeout=args.request_timeout,
        drain_timeout=args.drain_timeout,
    )


def _address_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    group.add_argument("--port", type=int, default=8000, help="0 is any free one (%(default)s)")
    group.add_argument("--uds", metavar="PATH", help="Unix socket instead of host and port")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="private key, PEM")
    group.add_argument("--ssl-certfile", metavar="FILE", help="certificate chain, PEM")


def _access_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help=f"clients must send it; repeatable; better in {KEY_VARIABLE}, which ps does not show",
    )
    group.add_argument(
        "--public-metrics", action="store_true", help="/metrics answers without an API key"
    )
    group.add_argument(
        "--allowed-origins",
        nargs="+",
        metavar="ORIGIN",
        help="web pages that may ask (CORS); '*' is all",
    )


def _limit_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-queue",
        type=int,
        default=DEFAULT_MAX_QUEUE,
        help="answers that may wait; more get 429 (%(default)s)",
    )
    group.add_argument(
        "--max-body-size",
        type=int,
        default=DEFAULT_MAX_BODY,
        metavar="BYTES",
        help="of one request (%(default)s)",
    )
    group.add_argument(
        "--request-timeout",
        type=float,
        metavar="SECONDS",
        help="end answers that take longer (no limit)",
    )
    group.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time for open answers after SIGTERM or Ctrl-C (%(default)g)",
    )
    group.add_argument("--log-level", choices=logs.LEVELS, default="info", help="(%(default)s)")
    group.add_argument("--log-format", choices=logs.FORMATS, default="text", help="(%(default)s)")


def announcer(settings: ServerSettings) -> Callable[[str, str], None]:
    """Return what says once, on stdout, that the server is ready and how to ask."""

    def announce(url: str, model: str) -> None:
        message = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        key = " -H 'Authorization: Bearer KEY'" if settings.api_keys else ""
        uds = f" --unix-socket {settings.uds}" if settings.uds else ""
        where = settings.uds or f"{url}/v1"
        print(f"infer: {model} is ready at {where}")
        print(
            f"  curl{uds} {url}/v1/chat/completions -H 'Content-Type: application/json'{key} "
            f"-d {shlex.quote(json.dumps(message, ensure_ascii=False))}",
            flush=True,
        )

    return announce
