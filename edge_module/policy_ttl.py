# SPDX-License-Identifier: Apache-2.0

"""The policy that holds here, and its time to live.

The last policy outlives the controller and this process. Whatever the
controller says renews it; where nothing was heard for its ``ttl_s``, coflows
share the link equally until the controller is back.
"""

import time
from typing import Any

from oslo_log import log as logging

from edge_module import kept_state as state
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_NAME = 'policy'
_SAVE_INTERVAL_S = 5.0


class HeldPolicy:
    """The policy of one host, kept on disk.

    :ivar policy: None before the first one.
    :ivar was_past_ttl: what :meth:`is_past_ttl` said last.
    """

    def __init__(self, host: str, files: state.StateDir):
        self.policy: edge_policy.EdgePolicy | None = None
        self._host = host
        self._files = files
        self.was_past_ttl = False
        self._renewed_s = time.monotonic()
        self._saved: tuple[Any, ...] | None = None
        self._save_due_s = 0.0

    def load(self) -> edge_policy.EdgePolicy | None:
        """Take the saved one, which is as old as it is."""
        saved = self._files.load(_NAME)
        if saved is None:
            return None
        try:
            policy = edge_policy.EdgePolicy.from_dict(saved['policy'])
            age_s = max(0.0, time.time() - float(saved['renewed_at']))
        except (exception.PolicyInvalid, KeyError, TypeError,
                ValueError) as error:
            LOG.warning('The saved policy is of no use: %s', error)
            return None
        self._renewed_s -= age_s
        self.policy, self.was_past_ttl = policy, bool(saved.get('fair'))
        return policy

    def take(self, document: Any) -> edge_policy.EdgePolicy:
        """Take a policy that the controller sent.

        :raises virtco.exception.PolicyInvalid: for one that is malformed or
            of another host; the one before stays.
        """
        policy = edge_policy.EdgePolicy.from_dict(document)
        if policy.host != self._host:
            raise exception.PolicyInvalid(
                field='host', value=policy.host,
                limit=f'this host, {self._host}')
        self.policy = policy
        self._save_due_s = 0.0
        return policy

    def is_past_ttl(self, now_s: float, heard_s: float) -> bool:
        """Whether the policy was not renewed within its time to live.

        :param heard_s: when the controller last said something.
        """
        if self.policy is None:
            return False
        self._renewed_s = max(self._renewed_s, heard_s)
        is_past = now_s - self._renewed_s > self.policy.ttl_s
        if is_past and not self.was_past_ttl:
            LOG.warning('No controller for %.0f s: coflows share the link '
                        'equally from now on', self.policy.ttl_s)
        elif self.was_past_ttl and not is_past:
            LOG.info('The controller is back: order and rates again')
        self.was_past_ttl = is_past
        return is_past

    def save(self) -> None:
        """Save a new policy at once, and when it was renewed now and then."""
        latest = self.policy, self._renewed_s, self.was_past_ttl
        now_s = time.monotonic()
        if (self.policy is None or latest == self._saved
                or now_s < self._save_due_s):
            return
        self._saved, self._save_due_s = latest, now_s + _SAVE_INTERVAL_S
        self._files.save(_NAME, {
            'policy': self.policy.to_dict(),
            'fair': self.was_past_ttl,
            'renewed_at': time.time() - (now_s - self._renewed_s)})
