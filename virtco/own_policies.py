# SPDX-License-Identifier: Apache-2.0

"""Finds the installed policy of one's own, the setting ``order = own``."""

from collections.abc import Sequence
import functools
from importlib import metadata
import logging

from virtco import exception
from virtco.scheduling import own_policy
from virtco.scheduling import policies

LOG = logging.getLogger(__name__)

#: Value of the setting ``order``, and the group of entry points.
OWN = 'own'
GROUP = 'virtco.policies'


class Guarded:
    """Policy of one's own whose failures harm nobody.

    Without its order, coflows are served by the least remaining time. The log
    has the first of several failures of a method.
    """

    def __init__(self, policy: own_policy.Policy):
        self._policy = policy
        self._failing: set[str] = set()

    def order(self, coflows: Sequence[own_policy.Unfinished]
              ) -> list[own_policy.Unfinished]:
        """Return the coflows, the first to be served first."""
        try:
            found = own_policy.ordered(self._policy, coflows)
        except Exception:
            self._tell('order')
            return sorted(coflows, key=lambda c: c.alone_s / c.weight)
        self._failing.discard('order')
        return found

    def rates(self, coflows: Sequence[own_policy.Unfinished]
              ) -> Sequence[float]:
        """Return the share of its speed alone that each coflow has."""
        try:
            found = own_policy.shares(self._policy, coflows)
        except Exception:
            self._tell('rates')
            return [0.0] * len(coflows)
        self._failing.discard('rates')
        return found

    def _tell(self, method: str) -> None:
        if method not in self._failing:
            LOG.exception('The %s of the installed policy failed: coflows are '
                          'served without.', method)
        self._failing.add(method)


def named(order: str) -> str | policies.Policy:
    """Return an order as the scheduler takes it.

    :raises virtco.exception.Invalid: see :func:`installed`.
    """
    return installed() if order == OWN else order


@functools.cache
def installed() -> policies.Policy:
    """Load the policy that is installed.

    :raises virtco.exception.Invalid: unless there is one, and only one.
    """
    found = metadata.entry_points(group=GROUP)
    names = ', '.join(sorted(point.name for point in found)) or 'none'
    if len(found) != 1:
        raise exception.Invalid(
            field='order', value=OWN, limit=f'one installed entry point of '
            f'the group {GROUP} (there is: {names})')
    (point,) = found
    try:
        return policies.of(Guarded(point.load()()))
    except Exception as error:
        raise exception.Invalid(
            field='order', value=OWN, limit=f'a policy {point.value} that '
            f'can be loaded ({error!r})') from error
