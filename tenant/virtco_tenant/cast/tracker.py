# SPDX-License-Identifier: Apache-2.0

"""The tracker of a cast: its members, their progress and their neighbours.

Each member asks once per second (Orchestra §5.2) with its address and the part
of the bytes that it has; the answer names its neighbours. The key in the path
keeps others out. Sizes of bodies, members and names are bounded.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import http.server
import json
import math
import threading
from typing import Annotated
from typing import Any

import msgspec

from virtco import decoding
from virtco import exception
from virtco.wire import fields
from virtco_tenant.cast import peers

POLL_S = 1.0
#: Seconds without a request after which a member is gone; it may come back.
LOST_S = 10.0
#: Seconds after which a gone member is not waited for; longer than a VM needs
#: to boot again.
MISSED_S = 60.0
#: Seconds after which receivers that never came are not waited for; somebody
#: may have to start each by hand.
ABSENT_S = 600.0
#: Seconds after the first receiver at which the cast begins without the rest.
GATHER_S = 15.0
MAX_MEMBERS = 4096
_MAX_BODY_BYTES = 256 * 1024
MAX_NAME = 255

_Rate = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]


class _Asked(msgspec.Struct, frozen=True):
    """A member's request; see :meth:`Tracker.ask`.

    :ivar files: digest of the description that the member has.
    """

    name: fields.Name
    port: fields.Port
    cluster: fields.Text | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    rates_bps: dict[str, _Rate] = {}
    failed: fields.Name | None = None
    files: str | None = None


_ASKED: 'decoding.Decoder[_Asked]' = decoding.Decoder(_Asked)


@dataclasses.dataclass
class _Seen:
    address: tuple[str, int]
    seen_s: float
    cluster: str | None = None
    share: float = 0.0
    has_all: bool = False
    failed: str | None = None


class Tracker:
    """State of one cast; safe for threads.

    :param expected: number of receivers. The cast begins when all are here,
        or GATHER_S after the first.
    :param clusters: cluster by name or address, for members that name none.
    :param plan: returns the part of each member, such as ``peers.plan``.
    :param missed_s: seconds after which a gone receiver is not waited for,
        when all others are done.
    :param absent_s: seconds after which receivers that never came are not
        waited for, when meanwhile no receiver came or was still receiving.
    """

    def __init__(self, source: str, expected: int, clock: Callable[[], float],
                 clusters: Mapping[str, str] | None = None, seed: int = 0,
                 plan: Callable[[str, Sequence[peers.Member], int],
                                dict[str, peers.Part]] = peers.plan,
                 missed_s: float = MISSED_S, absent_s: float = ABSENT_S):
        self._source = source
        self._expected = expected
        self._clock = clock
        self._clusters = dict(clusters or {})
        self._seed = seed
        self._plan = plan
        self._missed_s = missed_s
        self._absent_s = absent_s
        self._planned: tuple[list[peers.Member], dict[str, peers.Part]] = (
            [], {})
        self._members: dict[str, _Seen] = {}
        self._first_s: float | None = None
        self._began_s: float | None = None
        self._ended_s: float | None = None
        #: Time of the last request of a receiver that came or lacked blocks;
        #: infinite before one came.
        self._moved_s = math.inf
        self._failed: str | None = None
        #: The last 100 rates by (sender, receiver), for their median.
        self._rates_bps: dict[tuple[str, str], list[float]] = {}
        self._lock = threading.RLock()

    def ask(self, name: str, address: tuple[str, int], *,
            cluster: str | None = None, share: float = 0.0,
            rates_bps: Mapping[str, float] | None = None,
            failed: str | None = None) -> dict[str, Any]:
        """Update a member's state and return the answer to its request.

        :param address: (host, port) at which the member listens.
        :param share: part of the bytes that it has, 1 when it has all.
        :param rates_bps: rate of reception by sender since its last request.
        :param failed: why it gives up.
        :returns: neighbours and share, whether the cast is done, and why the
            source gave up, if it did.
        :raises OverflowError: beyond MAX_MEMBERS.
        """
        with self._lock:
            now_s = self._clock()
            if name not in self._members:
                if len(self._members) >= MAX_MEMBERS:
                    raise OverflowError(f'{MAX_MEMBERS} members are the most')
                self._members[name] = _Seen(address, now_s)
            member = self._members[name]
            member.address, member.seen_s = address, now_s
            if name != self._source and not (member.has_all and share >= 1):
                self._moved_s = now_s
            member.cluster = (cluster or self._clusters.get(name)
                              or self._clusters.get(address[0]))
            member.share = share
            member.has_all = share >= 1
            member.failed = failed
            for other, rate_bps in (rates_bps or {}).items():
                if other in self._members:
                    told = self._rates_bps.setdefault((other, name), [])
                    told.append(rate_bps)
                    del told[:-100]
            if name != self._source and self._first_s is None:
                self._first_s = now_s
            is_over = self.is_over
            if is_over and self._ended_s is None:
                self._ended_s = now_s
            return {**self._part(name, now_s), 'done': is_over,
                    'failed': self._failed}

    def fail(self, why: str) -> None:
        """Tell all members from now on that the source gives up."""
        with self._lock:
            self._failed = why

    def shares(self) -> dict[str, float]:
        """Return the part of the bytes, 0 to 1, that each receiver has."""
        with self._lock:
            return {name: seen.share for name, seen in self._members.items()
                    if name != self._source}

    def parts(self) -> dict[str, peers.Part]:
        """Return the part of each member; empty before the cast begins."""
        with self._lock:
            return dict(self._planned[1])

    def names(self) -> dict[str, frozenset[str]]:
        """Return the aliases of each member: its name and its address."""
        with self._lock:
            return {name: frozenset((name, seen.address[0]))
                    for name, seen in self._members.items()}

    def rates_bps(self) -> dict[tuple[str, str], list[float]]:
        """Return rates by (sender, receiver), as told by the receivers."""
        with self._lock:
            return {pair: list(told) for pair, told in
                    self._rates_bps.items()}

    @property
    def is_over(self) -> bool:
        """Whether no receiver is waited for any more."""
        with self._lock:
            gone = self._gone()
            return (self._n_done() + len(gone) + self._n_absent(gone)
                    >= self._expected)

    def missing(self) -> dict[str, str]:
        """Return the reason for each receiver that will not get all."""
        with self._lock:
            gone = self._gone()
            absent = self._n_absent(gone)
        return {**gone, f'{absent} of them': 'never came'} if absent else gone

    @property
    def n_lacking(self) -> int:
        """Number of receivers that do not have all."""
        with self._lock:
            return self._expected - self._n_done()

    def _gone(self) -> dict[str, str]:
        now_s = self._clock()
        return {name: seen.failed or f'gone for {now_s - seen.seen_s:.0f} s'
                for name, seen in self._members.items()
                if name != self._source and not seen.has_all and (
                    seen.failed is not None
                    or now_s - seen.seen_s > self._missed_s)}

    def _n_absent(self, gone: Mapping[str, str]) -> int:
        """Return the number of receivers given up that never came.

        :param gone: receivers that came and are given up.
        """
        if self._clock() <= self._moved_s + self._absent_s:
            return 0
        return max(0, self._expected - self._n_done() - len(gone))

    def _n_done(self) -> int:
        return sum(seen.has_all for name, seen in self._members.items()
                   if name != self._source)

    @property
    def taken_s(self) -> float | None:
        """Seconds from the beginning of the cast until it was over; None
        before.
        """
        with self._lock:
            if self._began_s is None or self._ended_s is None:
                return None
            return self._ended_s - self._began_s

    def _begins(self, now_s: float) -> bool:
        if self._began_s is None and self._source in self._members and (
                len(self._members) > self._expected
                or self._first_s is not None
                and now_s >= self._first_s + GATHER_S):
            self._began_s = now_s
        return self._began_s is not None

    def _part(self, name: str, now_s: float) -> dict[str, Any]:
        present = [peers.Member(one, seen.cluster)
                   for one, seen in self._members.items()
                   if now_s - seen.seen_s <= LOST_S
                   and seen.failed is None]
        if not self._begins(now_s) or self._source not in (
                member.name for member in present) or (
                    self._members[name].failed is not None):
            return {'swarms': [[] for _ in peers.LEVELS], 'share': None}
        if self._planned[0] != present:
            self._planned = present, self._plan(self._source, present,
                                                self._seed)
        part = self._planned[1][name]
        order = {one: place for place, one in enumerate(self._members)}
        return {
            'swarms': [[
                {'name': one, 'host': self._members[one].address[0],
                 'port': self._members[one].address[1],
                 'calls': order[name] > order[one]}
                for one in sorted(links)] for links in part.links],
            'share': part.share and dataclasses.asdict(part.share)}


def digest(torrent: bytes) -> str:
    """Return the SHA-256 of a description, in hex."""
    return hashlib.sha256(torrent).hexdigest()


def serve(tracker: Tracker, key: str, torrent: bytes,
          address: tuple[str, int]) -> http.server.ThreadingHTTPServer:
    """Answer on an address until ``shutdown``.

    ``GET /KEY/torrent`` returns the description of the files. ``POST
    /KEY/peers`` is a member's request, which is refused if the member has
    another description.
    """
    here = digest(torrent)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'
        timeout = 30

        def do_GET(self) -> None:
            if self.path == f'/{key}/torrent':
                self._answer(200, torrent, 'application/x-bittorrent')
            else:
                self._refuse(404, 'There is no such cast.')

        def do_POST(self) -> None:
            if self.path != f'/{key}/peers':
                self._refuse(404, 'There is no such cast.')
                return
            length = self.headers.get('Content-Length', '')
            if not length.isdigit() or int(length) > _MAX_BODY_BYTES:
                self._refuse(413, 'body: ' + exception.expected(
                    f'at most {_MAX_BODY_BYTES} bytes', length or None))
                return
            try:
                said = _ASKED.decode(self.rfile.read(int(length)))
                if said.files not in (None, here):
                    self._refuse(409, 'The sender has other files.')
                    return
                found = tracker.ask(
                    said.name, (self.client_address[0], said.port),
                    cluster=said.cluster, share=said.share,
                    rates_bps=said.rates_bps, failed=said.failed)
            except (exception.Invalid, ValueError) as error:
                self._refuse(400, str(error))
                return
            except OverflowError as error:
                self._refuse(403, str(error))
                return
            self._answer(200, json.dumps(found).encode(), 'application/json')

        def _refuse(self, status: int, why: str) -> None:
            # The unread rest of a body must not be read as a request.
            self.close_connection = True
            self._answer(status, json.dumps({'error': why}).encode(),
                         'application/json')

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header('Content-Type', kind)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
