# SPDX-License-Identifier: Apache-2.0

"""A wire between two processes that can be cut, held or made slow."""

import asyncio
import contextlib
import threading

_CHUNK = 64 * 1024


class Wire:
    """Listens on a port of 127.0.0.1 and passes all on to another one.

    ``pass``: as it is. ``cut``: connections end, new ones are refused after
    their beginning. ``hold``: connections stay and nothing arrives, as when
    the other end is gone without a word; who connects is not answered.
    ``slow``: each way takes ``SLOW_S`` longer.

    """

    SLOW_S = 0.2

    def __init__(self, port):
        self._target = port
        self._mode = 'pass'
        self._tasks = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever,
                                        daemon=True)
        self._thread.start()
        self._changed = self._call(_event())
        self._server = self._call(asyncio.start_server(
            self._connected, '127.0.0.1', 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def _call(self, awaitable):
        return asyncio.run_coroutine_threadsafe(awaitable,
                                                self._loop).result(10)

    def aim(self, port):
        """The other end has another port from now on."""
        self._target = port

    def set(self, mode):
        """What was held until now is lost with its connection."""
        self._call(self._set(mode))

    async def _set(self, mode):
        was_held = self._mode == 'hold'
        self._mode = mode
        self._changed.set()
        self._changed.clear()
        if mode == 'cut' or was_held:
            for task in list(self._tasks):
                task.cancel()

    def close(self):
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self):
        self._server.close()
        tasks = list(self._tasks)
        await self._set('cut')
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._let_pass()
            if self._mode == 'cut':
                return
            there = await asyncio.open_connection('127.0.0.1', self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, there[1]))
                    both.create_task(self._pump(there[0], writer))
            finally:
                there[1].transport.abort()
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, reader, writer):
        while data := await reader.read(_CHUNK):
            await self._let_pass()
            if self._mode == 'slow':
                await asyncio.sleep(self.SLOW_S)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()

    async def _let_pass(self):
        while self._mode == 'hold':
            await self._changed.wait()


async def _event():
    return asyncio.Event()
