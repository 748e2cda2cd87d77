# SPDX-License-Identifier: Apache-2.0

"""How often each project may ask."""

from collections.abc import Callable
import math
import threading
import time
from typing import Any

import falcon
from oslo_config import cfg

#: Roles of those who answer for the cloud, and not for a project.
EXEMPT = frozenset({'admin', 'service'})
#: Set by keystonemiddleware once it has checked the token; no header of a
#: request becomes a key like this.
TOKEN = 'keystone.token_auth'
MOST_PROJECTS = 10_000
#: Requests without a token, which health checks of a load balancer are, in the
#: long run per second and address.
OPEN_PER_S = 20
#: Requests that may come at once after a silence, in seconds of the pace.
AT_ONCE_S = 4


class Pace:
    """A bucket of requests per project or address (GCRA, ITU-T I.371).

    Each process counts for itself.

    :param per_s: requests per second in the long run, 0: any number.
    :param burst: requests at once.
    """

    def __init__(self, per_s: float, burst: int,
                 clock: Callable[[], float] = time.monotonic):
        self._step_s = 1 / per_s if per_s else 0.0
        self._ahead_s = self._step_s * burst
        self._clock = clock
        self._lock = threading.Lock()
        #: When the bucket of each project is full again.
        self._full_s: dict[str, float] = {}

    def wait_s(self, project_id: str) -> float:
        """0 for a request that may be answered, which is counted; otherwise
        the seconds until one may be.
        """
        if not self._step_s:
            return 0.0
        now_s = self._clock()
        with self._lock:
            full_s = max(now_s, self._full_s.get(project_id, 0.0)
                         ) + self._step_s
            if full_s - now_s > self._ahead_s:
                return full_s - now_s - self._ahead_s
            if len(self._full_s) >= MOST_PROJECTS:
                self._full_s = {project: at_s for project, at_s
                                in self._full_s.items() if at_s > now_s}
            self._full_s[project_id] = full_s
        return 0.0


class Limiter:
    """Middleware of falcon that counts requests per authenticated project,
    and those on paths that need no token per address.

    Headers prove nothing there: anybody may write them.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        per_s = conf.limits.requests_per_s
        self._pace = Pace(per_s, math.ceil(AT_ONCE_S * per_s))
        self._open = Pace(OPEN_PER_S, AT_ONCE_S * OPEN_PER_S)

    def process_request(self, request: falcon.Request,
                        _response: Any) -> None:
        if TOKEN not in request.env:
            _refuse(self._open.wait_s(request.remote_addr),
                    f'{request.remote_addr} asks without a token more often '
                    f'than {OPEN_PER_S} times a second.')
            return
        project_id = request.env.get('HTTP_X_PROJECT_ID')
        roles = request.env.get('HTTP_X_ROLES', '').lower().split(',')
        if not project_id or not EXEMPT.isdisjoint(roles):
            return
        _refuse(self._pace.wait_s(project_id),
                f'Project {project_id} asks more often than '
                '[limits] requests_per_s allows.')


def _refuse(wait_s: float, why: str) -> None:
    """:raises falcon.HTTPTooManyRequests: where there is a time to wait."""
    if wait_s > 0:
        raise falcon.HTTPTooManyRequests(
            title='Too many requests', description=why,
            retry_after=int(wait_s) + 1)
