# SPDX-License-Identifier: Apache-2.0

"""The policy that holds here, and its time to live.

The last policy outlives the controller and this process. Whatever the
controller says renews it. Beyond its ``ttl_s`` it ages step by step, once in
each further ``ttl_s``: what each step changes stands in
:func:`edge_module.tcplan.shape.build_tree`.
"""

import math
import time
from typing import Any

from oslo_log import log as logging

from edge_module import kept_state as state
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_NAME = 'policy'
_SAVE_INTERVAL_S = 5.0
#: Steps after which nothing changes any more: every limit is above the link.
MOST_STEPS = 40


class HeldPolicy:
    """The policy of one host, kept on disk.

    :ivar policy: None before the first one.
    :ivar n_past: number that :meth:`count_past` returned last.
    """

    def __init__(self, host: str, files: state.StateDir):
        self.policy: edge_policy.EdgePolicy | None = None
        self._host = host
        self._files = files
        self.n_past = 0
        self._renewed_s = time.monotonic()
        self._saved: tuple[Any, ...] | None = None
        self._save_due_s = 0.0

    def load(self) -> edge_policy.EdgePolicy | None:
        """Take the saved one, which is as old as it is.

        The directory of a copied machine has that of another host.
        """
        saved = self._files.load(_NAME)
        if saved is None:
            return None
        try:
            policy = self._read(saved['policy'])
            age_s = max(0.0, time.time() - float(saved['renewed_at']))
        except (exception.PolicyInvalid, KeyError, TypeError,
                ValueError) as error:
            LOG.warning('The saved policy is of no use: %s', error)
            return None
        self._renewed_s -= age_s
        self.policy = policy
        self.count_past(time.monotonic(), -math.inf)
        return policy

    def take(self, document: Any) -> edge_policy.EdgePolicy:
        """Take a policy that the controller sent.

        :raises virtco.exception.PolicyInvalid: for one that is malformed or
            of another host; the one before stays.
        """
        self.policy = policy = self._read(document)
        self._save_due_s = 0.0
        return policy

    def _read(self, document: Any) -> edge_policy.EdgePolicy:
        policy = edge_policy.EdgePolicy.from_dict(document)
        if policy.host != self._host:
            raise exception.PolicyInvalid(
                field='host', value=policy.host,
                limit=f'the name of this host ({self._host})')
        return policy

    def count_past(self, now_s: float, heard_s: float) -> int:
        """Count how often the policy's time to live passed since renewal.

        :param heard_s: time of the controller's last message.
        :returns: at most :data:`MOST_STEPS`.
        """
        if self.policy is None:
            return 0
        self._renewed_s = max(self._renewed_s, heard_s)
        age_s = now_s - self._renewed_s
        # The time to live of some policies is 0.
        n_past = int(age_s / max(self.policy.ttl_s, age_s / MOST_STEPS)
                     ) if age_s > self.policy.ttl_s else 0
        if n_past and not self.n_past:
            LOG.warning('No controller for %.0f s: coflows have shares of the '
                        'link from now on, and no order', self.policy.ttl_s)
        elif self.n_past and not n_past:
            LOG.info('The controller is back: order and rates again')
        self.n_past = n_past
        return n_past

    def save(self) -> None:
        """Save a new policy at once, and when it was renewed now and then."""
        latest = self.policy, self._renewed_s
        now_s = time.monotonic()
        if (self.policy is None or latest == self._saved
                or now_s < self._save_due_s):
            return
        self._saved, self._save_due_s = latest, now_s + _SAVE_INTERVAL_S
        self._files.save(_NAME, {
            'policy': self.policy,
            'renewed_at': time.time() - (now_s - self._renewed_s)})
