# SPDX-License-Identifier: Apache-2.0

"""Limits on the processor time of each caller of the API."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import hashlib
import threading
import time
from typing import Any

import falcon

from virtco.api import listeners
from virtco.distribute import token_bucket
from virtco.place import newest
from virtco.wire import error

#: Roles of those who answer for the cloud, and not for a project.
EXEMPT = frozenset({'admin', 'service'})
#: Set by keystonemiddleware once it has checked the token; no header of a
#: request becomes a key like this.
TOKEN = 'keystone.token_auth'
#: Load balancers and Prometheus carry no tokens, nor do those who look for the
#: versions.
OPEN_PATHS = ('/', '/v1', '/health', '/metrics')
#: Processor time that the requests of one caller take, in the long run per
#: second and at once; a list of 500 coflows of 12 VMs takes 40 ms.
CPU_PER_S = 0.05
BURST_CPU_S = 1.0
#: Processor time of a request before it is handled: its token is checked.
TOKEN_CPU_S = 0.002
#: Processor time that a request under way counts as until it is over: the time
#: of many parallel requests is known too late.
AHEAD_CPU_S = 0.05
#: Requests on open paths, in the long run per second and address, and at once.
OPEN_PER_S = 20
OPEN_BURST = 4 * OPEN_PER_S
#: Headers whose tokens keystonemiddleware checks.
_TOKENS = 'HTTP_X_AUTH_TOKEN', 'HTTP_X_SERVICE_TOKEN'
#: Tokens that were good last, which keystonemiddleware knows, too.
MOST_TOKENS = 10_000
#: Debt in processor time up to which a client waits and is answered: one that
#: sends its requests one after another is slowed down, never refused.
HELD_S = 1.0


class Limiter:
    """Middleware of falcon that charges processor time to each authenticated
    project, or user without one, and counts requests on open paths per
    address.

    Headers prove nothing there: anybody may write them. Without keystone
    whoever asks may do everything; reading is charged to its address then,
    and Nova, which writes, never waits.

    :param most_held: requests that wait at a time; others are refused.
    :param cpu_clock: processor time of the calling thread.
    :param sleep: holds the calling thread.
    """

    def __init__(self, is_keystone: bool, most_held: int,
                 clock: Callable[[], float] = time.monotonic,
                 cpu_clock: Callable[[], float] = time.thread_time,
                 sleep: Callable[[float], None] = time.sleep):
        self._is_keystone = is_keystone
        # All hypervisors may come from one address, by a proxy.
        self._ahead_s = AHEAD_CPU_S if is_keystone else 0.0
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._cpu = token_bucket.Buckets(CPU_PER_S, BURST_CPU_S)
        self._open = token_bucket.Buckets(OPEN_PER_S, OPEN_BURST)
        self._sleep = sleep
        self._places = threading.Semaphore(most_held)

    def process_request(self, request: falcon.Request,
                        _response: Any) -> None:
        """Check that the caller may ask now; start its processor clock.

        :raises falcon.HTTPTooManyRequests: when it has to wait.
        """
        now_s = self._clock()
        if (TOKEN not in request.env if self._is_keystone
                else request.path in OPEN_PATHS):
            address = request.remote_addr
            self._hold(self._open.wait_s(address, now_s),
                       f'{address} asks without a token more often than '
                       f'{OPEN_PER_S} times a second.')
            self._open.spend(address, 1, now_s)
            return
        caller = self._charged(request)
        if caller:
            self._hold(self._cpu.wait_s(caller, now_s),
                       f'Requests of {caller} take more than '
                       f'{CPU_PER_S:.0%} of a processor.')
            self._cpu.spend(caller, self._ahead_s, now_s)
            request.context.charged = caller, self._cpu_clock()

    def process_response(self, request: falcon.Request, _response: Any,
                         _resource: Any, _is_good: bool) -> None:
        """Charge the processor time of a request to its caller's budget."""
        charged = getattr(request.context, 'charged', None)
        if charged is not None:
            caller, began_s = charged
            used_s = TOKEN_CPU_S + self._cpu_clock() - began_s
            self._cpu.spend(caller, used_s - self._ahead_s, self._clock())

    def _charged(self, request: falcon.Request) -> str:
        """Name who pays for a request; nobody: an empty name."""
        if not self._is_keystone:
            return request.remote_addr if request.method == 'GET' else ''
        roles = request.env.get('HTTP_X_ROLES', '').lower().split(',')
        if not EXEMPT.isdisjoint(roles):
            return ''
        project_id = request.env.get('HTTP_X_PROJECT_ID')
        # Every user gets a token without a project.
        return (f'project {project_id}' if project_id else
                f'user {request.env.get("HTTP_X_USER_ID")}')

    def _hold(self, wait_s: float, why: str) -> None:
        """Wait where there is time to wait.

        :raises falcon.HTTPTooManyRequests: where it is too long.
        """
        if not wait_s:
            return
        if self._places.acquire(blocking=False):
            try:
                self._sleep(min(wait_s, HELD_S))
            finally:
                self._places.release()
            if wait_s <= HELD_S:
                return
        raise falcon.HTTPTooManyRequests(
            title='Too many requests', description=why,
            retry_after=int(wait_s) + 1)


class Strangers:
    """WSGI application in front of the check of tokens: an address has so
    many unknown ones checked at a time, as each takes a thread until keystone
    answers.

    :param guarded: checks tokens, and answers.
    """

    def __init__(self, guarded: listeners.Wsgi, most: int):
        self._guarded = guarded
        self._most = most
        self._checking: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._good: newest.Newest[bytes, bool] = newest.Newest(MOST_TOKENS)

    def __call__(self, environ: dict[str, Any],
                 start_response: Any) -> Iterable[bytes]:
        tokens = hashlib.sha256('\n'.join(
            environ.get(name, '') for name in _TOKENS).encode()).digest()

        def begin(status: str, *rest: Any) -> Any:
            is_good = TOKEN in environ and not status.startswith('401')
            if is_good or self._good.get(tokens):
                self._good.put(tokens, is_good)
            return start_response(status, *rest)

        if self._good.get(tokens):
            return self._guarded(environ, begin)
        address = environ.get('REMOTE_ADDR', '')
        with self._lock:
            if self._checking[address] >= self._most:
                return _refused(address, start_response)
            self._checking[address] += 1
        try:
            return self._guarded(environ, begin)
        finally:
            with self._lock:
                self._checking[address] -= 1
                self._checking += collections.Counter()  # drops zeros


def _refused(address: str, start_response: Any) -> Iterable[bytes]:
    return listeners.answer(
        start_response, '429 Too Many Requests', error.Failure(error.Error(
            code='virtco.http_429', title='Too many requests',
            detail=f'Keystone checks many tokens of {address} already.')),
        ('Retry-After', '1'))
