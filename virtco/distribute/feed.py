# SPDX-License-Identifier: Apache-2.0

"""A peer's end of its connection to the leading scheduler.

Where the leader is stands in the database. While it cannot be reached, the
policies that it stored there are read.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import logging
import threading
from typing import Any
import urllib.parse

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco.db import leader
from virtco.db import session as db_session
from virtco.distribute import frames
from virtco.distribute import peers
from virtco.leadership import lock
from virtco.wire import reports

LOG = logging.getLogger(__name__)

RETRY_S = 0.5
CONNECT_S = 2.0
#: What waits while the leader is away or slow.
MOST_REPORTS = 50_000
MOST_SAID = 1000
MOST_WAITING_BYTES = 8 * 1024 * 1024


class Feed:
    """
    :param on_policies: is called with hosts that have a new policy.
    :param on_train: is called with a host and the train it is to send.
    :param on_leader: is called when there is a connection to the leader, and
        returns what it must be told: every report that is known here.
    :ivar epoch: the newest that was heard of.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: db_session.Database,
                 on_policies: Callable[[list[str]], None] = lambda _: None,
                 on_train: Callable[[str, dict[str, Any]], None] = (
                     lambda *_: None),
                 on_leader: Callable[[], Iterable[
                     tuple[str, reports.Report]]] = lambda: ()):
        self.epoch = 0
        self.n_hosts = 0
        self.is_connected = False
        self._conf = conf
        self._database = database
        self._on_policies = on_policies
        self._on_train = on_train
        self._on_leader = on_leader
        self._policies: dict[str, peers.Policy] = {}
        self._followed: dict[str, int] = {}
        self._reports: dict[str, reports.Report] = {}
        self._heard: set[str] = set()
        self._said: list[peers.Said] = []
        self._is_flushing = False
        self._writer: asyncio.StreamWriter | None = None
        self._tls = peers.client_tls(conf)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name='feed',
                                        daemon=True)

    def start(self) -> None:
        """From here on the newest epoch is known, if the database is there.
        """
        with contextlib.suppress(exception.VirtcoException):
            self._look()
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread.is_alive() and (
                threading.current_thread() is not self._thread):
            self._thread.join(5)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    # What the process asks and says, on any thread.

    def policy(self, host: str) -> peers.Policy | None:
        return self._policies.get(host)

    def follow(self, host: str, generation: int) -> None:
        """:param generation: of the policy that the edge module has."""
        self._soon(self._follow, host, generation)

    def leave(self, host: str) -> None:
        self._soon(self._leave, host)

    def report(self, host: str, report: reports.Report) -> None:
        self._soon(self._add_report, host, report)

    def heard(self, hosts: Iterable[str]) -> None:
        self._soon(self._add_heard, set(hosts))

    def say(self, message: peers.Said) -> None:
        self._soon(self._say, message)

    def changed(self, groups: Iterable[str] | None) -> None:
        self.say(peers.Changed(None if groups is None else list(groups)))

    def measured(self, measurement: reports.Measurement) -> None:
        self.say(peers.Measured(measurement))

    def forgiven(self, project_id: str) -> None:
        self.say(peers.Forgiven(project_id))

    def _soon(self, work: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # it was stopped
            self._loop.call_soon_threadsafe(work, *args)

    # On its thread.

    def _follow(self, host: str, generation: int) -> None:
        self._followed[host] = generation
        self._policies.pop(host, None)
        self._send(peers.Follow({host: generation}))

    def _leave(self, host: str) -> None:
        self._followed.pop(host, None)
        self._policies.pop(host, None)
        self._send(peers.Leave([host]))

    def _add_report(self, host: str, report: reports.Report) -> None:
        if host in self._reports or len(self._reports) < MOST_REPORTS:
            self._reports[host] = report
        self._flush_soon()

    def _add_heard(self, hosts: set[str]) -> None:
        self._heard |= hosts
        self._flush_soon()

    def _say(self, message: peers.Said) -> None:
        self._said = [*self._said[1 - MOST_SAID:], message]
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """The newest of everything; nothing queues up behind it."""
        self._is_flushing = False
        if self._writer is None:
            return
        if (self._writer.transport.get_write_buffer_size()
                > MOST_WAITING_BYTES):
            self._is_flushing = True
            self._loop.call_later(0.05, self._flush)
            return
        said, self._said = self._said, []
        for message in said:
            self._send(message)
        reports, self._reports = self._reports, {}
        heard, self._heard = self._heard, set()
        if reports or heard:
            self._send(peers.Reports(reports, list(heard)))

    def _send(self, message: peers.Said) -> None:
        if self._writer is not None:
            self._writer.write(peers.pack(message))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(self._work())
        try:
            self._loop.run_forever()
        finally:
            task.cancel()
            self._loop.run_until_complete(
                asyncio.gather(task, return_exceptions=True))
            self._loop.close()

    async def _work(self) -> None:
        why = ''
        while True:
            try:
                seen = await asyncio.to_thread(self._look)
                if seen.address:
                    await self._converse(seen)
            except (OSError, EOFError, TimeoutError, msgspec.MsgspecError,
                    exception.VirtcoException) as error:
                if str(error) != why:
                    why = str(error)
                    LOG.warning('The leading scheduler cannot be reached: '
                                '%s', why or type(error).__name__)
            except Exception:
                LOG.exception('The leading scheduler cannot be reached.')
            with contextlib.suppress(exception.VirtcoException):
                self._learn(await asyncio.to_thread(self._stored))
            await asyncio.sleep(RETRY_S)

    def _look(self) -> leader.Seen:
        with self._database.reader() as session:
            seen = leader.current(session)
        self.epoch = max(self.epoch, seen.epoch)
        return seen

    def _stored(self) -> list[peers.Policy]:
        """Policies of the database that are newer than those here."""
        followed = dict(self._followed)
        if not followed:
            return []
        with self._database.reader() as session:
            newer = [host for host, generation in leader.generations(
                session).items() if host in followed
                and generation > self._generation(host, followed[host])]
            return [peers.Policy(one.host, one.epoch, one.generation,
                                 msgspec.Raw(one.document.encode()))
                    for one in leader.policies(session, newer)]

    def _generation(self, host: str, of_edge: int) -> int:
        found = self._policies.get(host)
        return max(of_edge, found.generation if found is not None else 0)

    def _learn(self, policies: Iterable[peers.Policy]) -> None:
        taken = []
        for policy in policies:
            if policy.host in self._followed and policy.epoch >= self.epoch:
                self._policies[policy.host] = policy
                taken.append(policy.host)
        if taken:
            self._on_policies(taken)

    async def _converse(self, seen: leader.Seen) -> None:
        """Until the connection breaks."""
        parts = urllib.parse.urlsplit(f'//{seen.address}')
        reader, writer = await asyncio.wait_for(asyncio.open_connection(
            parts.hostname, parts.port, ssl=self._tls), CONNECT_S)
        try:
            writer.write(peers.pack(peers.Hello(lock.name_of_process(),
                                                self.epoch)))
            cut = frames.Reader(peers.MOST_BYTES)
            while True:
                data = await asyncio.wait_for(reader.read(1 << 18),
                                              peers.SILENT_S)
                if not data:
                    raise ConnectionResetError('it closed the connection')
                self._hear([peers.TOLD.decode(payload)
                            for payload in cut.feed(data)], writer)
        finally:
            if self.is_connected:
                LOG.warning('Lost the leading scheduler.')
            self.is_connected = False
            self._writer = None
            writer.transport.abort()

    def _hear(self, messages: list[peers.Told],
              writer: asyncio.StreamWriter) -> None:
        self._learn([message for message in messages
                     if isinstance(message, peers.Policy)])
        for message in messages:
            match message:
                case peers.Welcome():
                    self._welcomed(message.epoch, writer)
                case peers.Alive():
                    self.n_hosts = message.n_hosts
                case peers.Train():
                    self._on_train(message.host, message.train)

    def _welcomed(self, epoch: int, writer: asyncio.StreamWriter) -> None:
        """Whatever the one before was told last may be lost."""
        if epoch < self.epoch:
            raise exception.Deposed(epoch=epoch)
        LOG.info('Connected to the leading scheduler, epoch %d.', epoch)
        self.epoch, self._writer, self.is_connected = epoch, writer, True
        self._send(peers.Follow({
            host: self._generation(host, generation)
            for host, generation in self._followed.items()}))
        self._send(peers.Changed(None))
        self._reports = dict(self._on_leader()) | self._reports
        self._flush_soon()
