# SPDX-License-Identifier: Apache-2.0

"""Follows the controller's policy, and keeps the last one on disk."""

from collections.abc import Callable
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module import state
from edge_module import stream
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_LOOK_S = 1.0

Apply = Callable[[edge_policy.EdgePolicy, bool], None]


class PolicySource:
    """Waits for the policy of this host, and hands it over.

    :param apply: takes a policy, and whether it decayed to fair sharing.
    :param refuse: takes the reason why a document is not applied.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer, files: state.StateDir,
                 stop: threading.Event, apply: Apply,
                 refuse: Callable[[str], None],
                 link: stream.Link):
        self.conf = conf
        self.enforcer = enforcer
        self._files = files
        self._stop = stop
        self._apply = apply
        self._refuse = refuse
        self._link = link
        self._saved_s = time.monotonic()
        self._saved: tuple[Any, ...] | None = None
        self._epoch = 0

    def load(self) -> None:
        """Go on with the last policy until the controller answers."""
        saved = self._files.load_policy()
        if saved is None:
            return
        policy, age_s = saved
        self._saved_s = time.monotonic() - age_s
        self._apply(policy, age_s > policy.ttl_s)

    def decay(self, now_s: float) -> None:
        """Let coflows share equally while no controller renews the policy."""
        policy = self.enforcer.policy
        if policy is None:
            return
        is_old = now_s - self._renewed_s() > policy.ttl_s
        if is_old and not self.enforcer.fair:
            LOG.warning('No controller for %.0f s: coflows share the link '
                        'equally from now on', policy.ttl_s)
            self._apply(policy, True)
        elif self.enforcer.fair and not is_old:
            LOG.info('The controller is back: order and rates again')
            self._apply(policy, False)

    @property
    def controller_up(self) -> bool:
        return self._link.is_up

    def _renewed_s(self) -> float:
        """Whatever the controller says renews the policy."""
        return max(self._saved_s, self._link.heard_s)

    def pull(self) -> None:
        """Take policies until told to stop."""
        self._epoch = self._link.epoch
        have: int | None = None
        while not self._stop.is_set():
            found = self._link.wait_policy(have, _LOOK_S)
            if found is not None:
                have, document = found
                self._link.say_taken(have, self._take(
                    document, self._link.epoch))

    def _take(self, document: Any, epoch: int) -> str | None:
        """Apply a document; a malformed or older one is refused whole.

        :returns: why it is refused.
        """
        try:
            policy = edge_policy.EdgePolicy.from_dict(document)
            self._check(policy, epoch)
        except exception.PolicyInvalid as error:
            self._refuse(str(error))
            return str(error)
        self._epoch = epoch
        self._apply(policy, False)
        self.save()
        return None

    def _check(self, policy: edge_policy.EdgePolicy, epoch: int) -> None:
        if policy.host != self.conf.edge.host:
            raise exception.PolicyInvalid(
                field='host', value=policy.host,
                limit=f'this host, {self.conf.edge.host}')
        have = self.enforcer.policy
        if (have is not None and epoch <= self._epoch
                and policy.generation < have.generation):
            # A controller that is told of it goes on behind what is here.
            raise exception.PolicyInvalid(
                field='generation', value=policy.generation,
                limit=f'{have.generation}, which is applied, or more')

    def save(self) -> None:
        policy = self.enforcer.policy
        renewed_s = self._renewed_s()
        latest = policy, renewed_s, self.enforcer.fair
        if policy is not None and latest != self._saved:
            self._saved = latest
            self._files.save_policy(policy, self.enforcer.fair,
                                    time.monotonic() - renewed_s)
