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
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.2
_LAST_BACKOFF_S = 10.0

Apply = Callable[[edge_policy.EdgePolicy, bool], None]


class PolicySource:
    """Asks for the policy of this host, and hands it over.

    :param apply: takes a policy, and whether it decayed to fair sharing.
    :param refuse: takes the reason why a document is not applied.
    :ivar controller_up: None until the first answer or failure.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer, files: state.StateDir,
                 stop: threading.Event, apply: Apply,
                 refuse: Callable[[str], None],
                 connect: Callable[[], stream.Client]):
        self.conf = conf
        self.enforcer = enforcer
        self.controller_up: bool | None = None
        self._files = files
        self._stop = stop
        self._apply = apply
        self._refuse = refuse
        self._connect = connect
        self._renewed_s = time.monotonic()
        self._saved: tuple[Any, ...] | None = None
        self._epoch = 0

    def load(self) -> None:
        """Go on with the last policy until the controller answers."""
        saved = self._files.load_policy()
        if saved is None:
            return
        policy, age_s = saved
        self._renewed_s = time.monotonic() - age_s
        self._apply(policy, age_s > policy.ttl_s)

    def decay(self, now_s: float) -> None:
        """Let coflows share equally when no controller renews the policy."""
        policy = self.enforcer.policy
        if (policy is not None and not self.enforcer.fair
                and now_s - self._renewed_s > policy.ttl_s):
            LOG.warning('No controller for %.0f s: coflows share the link '
                        'equally from now on', policy.ttl_s)
            self._apply(policy, True)

    def pull(self) -> None:
        """Ask until told to stop."""
        client = self._connect()
        self._epoch = client.epoch()
        etag: str | None = None
        backoff_s = _FIRST_BACKOFF_S
        while not self._stop.is_set():
            try:
                answer = client.get_policy(etag, self._poll_wait_s())
            except exception.ControllerUnavailable:
                self.controller_up = False
                self._stop.wait(backoff_s)
                backoff_s = min(_LAST_BACKOFF_S, backoff_s * 2)
                continue
            except exception.NotFound:
                self._stop.wait(_FIRST_BACKOFF_S)  # until the first report
                continue
            self.controller_up = True
            backoff_s = _FIRST_BACKOFF_S
            self._renewed_s = client.heard_s()
            if answer is not None:
                etag = answer[0]
                why_not = self._take(answer[1], client.epoch())
                client.policy_taken(answer[1], why_not)
            elif self.enforcer.fair and self.enforcer.policy is not None:
                LOG.info('The controller is back: order and rates again')
                self._apply(self.enforcer.policy, False)

    def _poll_wait_s(self) -> float:
        """Short enough to renew a policy in its time to live."""
        policy = self.enforcer.policy
        if policy is not None and self.enforcer.fair:
            return 0.0  # it is renewed by any answer
        wait_s: float = self.conf.edge.poll_wait_s
        return wait_s if policy is None else min(wait_s, policy.ttl_s / 3)

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
        latest = policy, self._renewed_s, self.enforcer.fair
        if policy is not None and latest != self._saved:
            self._saved = latest
            self._files.save_policy(policy, self.enforcer.fair,
                                    time.monotonic() - self._renewed_s)
