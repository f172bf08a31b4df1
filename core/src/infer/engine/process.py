"""The engine's own process: it loads the model, then computes what the front sends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import zmq

from infer.config.engine import EngineConfig
from infer.config.errors import UserError
from infer.engine.messages import (
    AbortRequests,
    AddRequests,
    EngineFailed,
    FromFront,
    Shutdown,
)
from infer.modeling.files import ModelFiles
from infer.plugins.plan import PluginPlan
from infer_plugin_api.errors import PluginApiError

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005


class Launch(msgspec.Struct, frozen=True):
    """The first message: everything the engine is built from."""

    config: EngineConfig
    files: ModelFiles
    plan: PluginPlan


def encode_path(value: Any) -> str:
    """msgspec's hook for paths, the only type here that msgpack does not know."""
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} can't be sent to the engine process")


def decode_path(kind: type, value: Any) -> Any:
    """The other way of :func:`encode_path`."""
    return Path(value) if issubclass(kind, Path) else value


def main(address: str) -> int:
    """Serve one front over *address*; end with it, or when it says so."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A worker that has the GIL for only moments must not wait 5 ms for it.
    sys.setswitchinterval(_SWITCH_SECONDS)
    context = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, 2000)
    socket.connect(address)
    encoder = msgspec.msgpack.Encoder()
    try:
        _serve(socket, encoder)
        return 0
    except (UserError, PluginApiError) as error:
        socket.send(encoder.encode(EngineFailed(str(error), user_error=True)))
    except Exception as error:
        log.exception("the engine has failed")
        socket.send(encoder.encode(EngineFailed(f"{type(error).__name__}: {error}")))
    finally:
        socket.close()
        context.term()
    return 1


def _serve(socket: zmq.Socket[bytes], encoder: msgspec.msgpack.Encoder) -> None:
    # Importing torch takes longest: it happens while the front still looks for the model.
    from infer.engine.core import EngineCore
    from infer.execution import worker as _worker  # noqa: F401
    from infer.plugins.discovery import load_plugins
    from infer.plugins.plan import mismatch

    launch = msgspec.msgpack.decode(socket.recv(), type=Launch, dec_hook=decode_path)
    registry = load_plugins(launch.plan.activation)
    if differences := mismatch(launch.plan, registry):
        raise UserError("the engine process has other plugins: " + "; ".join(differences))
    core = EngineCore(launch.config, launch.files, registry)
    socket.send(encoder.encode(core.info))
    decoder = msgspec.msgpack.Decoder(FromFront)
    try:
        while _take(socket, decoder, core, wait=not core.has_work()):
            if core.has_work():
                socket.send(encoder.encode(core.step()))
    finally:
        core.close()


def _take(
    socket: zmq.Socket[bytes], decoder: msgspec.msgpack.Decoder[Any], core: Any, *, wait: bool
) -> bool:
    """Apply what the front has sent; False when it asked for the end."""
    while wait or socket.poll(0):
        wait = False
        message = decoder.decode(socket.recv())
        if isinstance(message, AddRequests):
            for request in message.requests:
                core.add(request)
        elif isinstance(message, AbortRequests):
            core.abort(message.request_ids)
        elif isinstance(message, Shutdown):
            return False
    return True


def _end_with_parent() -> None:
    """stdin is a pipe that the front holds open: its end is the front's end."""
    # Not a buffered read: that holds a lock which the interpreter takes when it ends in order.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(
        level=os.environ.get("INFER_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)s engine %(name)s: %(message)s",
        stream=sys.stderr,
    )
    sys.exit(main(sys.argv[1]))
