"""The front's end of the engine process: start it, talk to it, notice its death."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

import msgspec
import zmq
import zmq.asyncio

from infer.engine.messages import FromEngine, FromFront, Shutdown
from infer.engine.process import Launch, encode_path
from infer.engine.threads import serving_environment

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 5.0


class EngineProcess:
    """A child process behind a Unix socket in a folder that only this user can enter."""

    def __init__(self, threads: int, on_exit: Callable[[int], None]) -> None:
        self._folder = tempfile.mkdtemp(prefix="infer-")
        address = f"ipc://{self._folder}/engine"
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.bind(address)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=encode_path)
        self._decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
        environment = {**os.environ, **serving_environment(threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "infer.engine.process", address],
            stdin=subprocess.PIPE,
            env=environment,
        )
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._launched = False

        def watch() -> None:
            code = self._process.wait()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._on_end, code, on_exit)

        threading.Thread(target=watch, name="infer-engine-watch", daemon=True).start()

    def _on_end(self, code: int, on_exit: Callable[[int], None]) -> None:
        self._ended.set()
        on_exit(code)

    async def launch(self, launch: Launch) -> None:
        """Send what the engine is built from."""
        self._launched = True
        await self._socket.send(self._encoder.encode(launch))

    async def send(self, message: FromFront) -> None:
        """Send a message; to an engine that has ended nothing is sent, its death is told apart."""
        try:
            await self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            log.debug("the engine has gone: %s is not sent", type(message).__name__)

    async def receive(self) -> FromEngine:
        return self._decoder.decode(await self._socket.recv())

    async def close(self) -> None:
        """End the process: in order if it listens, by force after five seconds.

        One that was never launched has nothing to put in order.
        """
        if not self._ended.is_set():
            if self._launched:
                await self.send(Shutdown())
            else:
                self._process.kill()
            try:
                await asyncio.wait_for(self._ended.wait(), _SHUTDOWN_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._ended.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._socket.close()
        self._context.term()
        shutil.rmtree(self._folder, ignore_errors=True)
