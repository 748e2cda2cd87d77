# SPDX-License-Identifier: Apache-2.0

"""Asks the controller for a placement, within bounds that Nova can bear.

Three bounds hold whatever the controller does: a call ends after
``timeout_ms``; after a call without an answer there is none for
``breaker_reset_s`` (circuit breaker, then one trial at a time); the calls of
one API request take ``request_budget_ms`` together. When the budget of a
large batch is used up, or the controller goes away in its midst, the rest is
placed by the plan that came with an earlier answer.
"""

from collections.abc import Callable
import dataclasses
import json
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_filters import controller_connection as connection
from nova_filters import recent
from nova_filters import sender
from virtco import hints

LOG = logging.getLogger(__name__)

#: API requests that are remembered.
MAX_REQUESTS = 256
#: Late news of a placement: how many, and for how long they are news.
MAX_LATE = 1000
LATE_S = 60.0

_lock = threading.Lock()
_clients: dict[tuple[Any, ...], 'PlanClient'] = {}


def get_client(conf: cfg.ConfigOpts) -> 'PlanClient':
    """Return the client of this process for the options as they are now."""
    options = conf.virtco
    key = (options.controller_url, options.timeout_ms,
           options.request_budget_ms, options.breaker_reset_s)
    with _lock:
        if key not in _clients:
            _clients.clear()
            _clients[key] = PlanClient(
                connection.Connection(conf),
                timeout_s=options.timeout_ms / 1e3,
                budget_s=options.request_budget_ms / 1e3,
                breaker=Breaker(options.breaker_reset_s))
        return _clients[key]


class Breaker:
    """Open after a failure for reset_s, then lets one trial through."""

    def __init__(self, reset_s: float,
                 clock: Callable[[], float] = time.monotonic):
        self._reset_s = reset_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_at: float | None = None
        self._trial = False

    def would_allow(self) -> bool:
        """Tell whether a call may be tried, without trying one."""
        return self._failed_at is None or not (
            self._trial
            or self._clock() - self._failed_at < self._reset_s)

    def allow(self) -> bool:
        """Answer as would_allow; an open breaker's True is the one trial."""
        with self._lock:
            allowed = self.would_allow()
            self._trial |= allowed and self._failed_at is not None
            return allowed

    def succeeded(self) -> bool:
        """Close the breaker; return True when it was open."""
        return not self._set(None)

    def failed(self) -> bool:
        """Open the breaker; return True when it was closed."""
        return self._set(self._clock())

    def _set(self, failed_at: float | None) -> bool:
        """Set the time of the failure; return True without one before."""
        with self._lock:
            was_closed = self._failed_at is None
            self._failed_at, self._trial = failed_at, False
            return was_closed

    def undecided(self) -> None:
        """Leave the trial to the next call, since this one told nothing."""
        with self._lock:
            self._trial = False


@dataclasses.dataclass
class _Request:
    """State of one API request.

    :ivar uuids: its instances, in the order in which Nova comes to them,
        which is that of their launch_index.
    :ivar rows: the controller's plan by row.
    :ivar body: body of the first call, without the hosts.
    """

    spent_s: float = 0.0
    warned: bool = False
    uuids: list[str] = dataclasses.field(default_factory=list)
    rows: dict[str, str] = dataclasses.field(default_factory=dict)
    body: dict[str, Any] = dataclasses.field(default_factory=dict)

    def warn(self, instance_uuid: str, why: object) -> None:
        """Warn once per request."""
        if not self.warned:
            self.warned = True
            LOG.warning('Instance %s is scheduled without virtco: %s',
                        instance_uuid, why)

    def index(self, instance_uuid: str) -> int:
        if instance_uuid not in self.uuids:
            self.uuids.append(instance_uuid)
        return self.uuids.index(instance_uuid)


class PlanClient:
    """Thread-safe client; the module's docstring states its bounds."""

    def __init__(self, link: connection.Connection, *, timeout_s: float,
                 budget_s: float, breaker: Breaker):
        self._link = link
        self._timeout_s = timeout_s
        self._budget_s = budget_s
        self._breaker = breaker
        self._lock = threading.Lock()
        self._requests = recent.Recent(MAX_REQUESTS)
        self._n_unplanned = 0
        self._late = sender.Sender(link, queue_size=MAX_LATE,
                                   timeout_s=10 * timeout_s)

    def _request(self, request_id: str) -> _Request:
        with self._lock:
            found: _Request = self._requests.pop(request_id) or _Request()
            self._requests.put(request_id, found)
            return found

    def may_ask(self, request_id: str) -> bool:
        """Return False when :meth:`place` would make no call."""
        request: _Request | None = self._requests.get(request_id)
        return self._breaker.would_allow() and (
            request is None or request.spent_s < self._budget_s)

    def knows(self, request_id: str) -> bool:
        """Tell whether the request has been asked about, so has a hint."""
        return request_id in self._requests

    def place(self, instance_uuid: str, body: dict[str, Any],
              request_id: str, since_s: float) -> dict[str, Any] | None:
        """Ask for a placement; None means "as if virtco were not there".

        :param body: body of ``PUT /v1/placements/{instance_uuid}``.
        :param request_id: id of the API request, whose budget this call uses.
        :param since_s: begin of the pass (``time.monotonic()``); the time that
            it has taken by now is part of the budget.
        """
        request = self._request(request_id)
        index = request.index(instance_uuid)
        request.body = request.body or {**body, 'hosts': []}
        answer = self._ask(instance_uuid, body, request, since_s)
        if answer is None:
            return self.recall(instance_uuid, request_id,
                               lambda: body['hosts'])
        request.rows = answer.get('rows') or request.rows
        if answer.get('row', index) != index:
            request.rows = {}  # a batch that joins a group: rows are shifted
        return answer

    def _ask(self, instance_uuid: str, body: dict[str, Any],
             request: _Request, since_s: float) -> dict[str, Any] | None:
        """Ask the controller within the request's budget; None: no answer."""
        left_s = (self._budget_s - request.spent_s
                  - (time.monotonic() - since_s))
        wait_s = min(self._timeout_s, left_s)
        if wait_s <= 0 or not self._breaker.allow():
            return None
        n_unplanned = self._n_unplanned
        try:
            answer = self._checked(self._link.send(
                'PUT', f'/v1/placements/{instance_uuid}',
                {**body, 'unplanned_passes': n_unplanned}, wait_s))
        except connection.Refused as error:
            self._breaker.succeeded()
            request.warn(instance_uuid, error)
            return None
        except connection.Unanswered as error:
            # A call that had less than its full time tells nothing.
            if wait_s < self._timeout_s:
                self._breaker.undecided()
                LOG.debug('Instance %s: %s', instance_uuid, error)
            elif self._breaker.failed():
                LOG.warning('Servers are scheduled without virtco, first '
                            'instance %s: %s', instance_uuid, error)
            return None
        except BaseException:  # the end of a thread, such as eventlet's
            self._breaker.undecided()
            raise
        finally:
            request.spent_s += time.monotonic() - since_s
        with self._lock:
            self._n_unplanned -= n_unplanned
        if self._breaker.succeeded():
            LOG.info('The virtco controller at %s answers again',
                     self._link.url)
        return answer

    def recall(self, instance_uuid: str, request_id: str,
               offers: Callable[[], list[dict[str, Any]]]
               ) -> dict[str, Any] | None:
        """Answer without a call, by the plan of this request.

        Without one the pass counts as unplanned; the controller is told the
        number with the next call.

        :param offers: gives the candidates, as ``hosts`` of a body; the
            planned one is sent in the background: all of them would take
            half a gigabyte for 1,000 servers and hosts.
        """
        request = self._request(request_id)
        row = request.index(instance_uuid)
        host = request.rows.get(str(row))
        if host is None or any(hints.INDEX in request.body[key]
                               for key in ('hints', 'metadata')):
            if request.spent_s >= self._budget_s:
                request.warn(instance_uuid, 'the time for calls is used up')
            with self._lock:
                self._n_unplanned += 1
            return None
        hosts = offers()
        self._late.put('PUT', f'/v1/placements/{instance_uuid}', {
            **request.body, 'launch_index': row, 'display_name': None,
            'hosts': [one for one in hosts if one['host'] == host] or hosts,
        }, LATE_S)
        return {'status': 'planned', 'hosts': [{'host': host}]}

    def _checked(self, content: bytes) -> dict[str, Any]:
        """Check that the answer has the shape that the weigher relies on."""
        try:
            answer: dict[str, Any] = json.loads(content)
            hosts = answer['hosts']
            if (answer['status'] in ('planned', 'neutral', 'ignored')
                    and isinstance(answer.get('why', ''), str)
                    and isinstance(hosts, list)
                    and all(isinstance(one['host'], str) for one in hosts)
                    and isinstance(answer.get('rows', {}), dict)):
                return answer
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise connection.Refused(
            url=self._link.url, why=f'not an answer: {content[:80]!r}')
