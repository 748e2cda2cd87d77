# SPDX-License-Identifier: Apache-2.0

"""Keeps the kernel true: what it is told at once, what is lost in time.

Level-triggered: whatever was missed or refused, the next audit makes right.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import time

from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module import kernel_events
from edge_module import supervise
from edge_module.classify import base as classify
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

TICK_S = 0.25
_IDLE_S = 1.0
_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 5.0


class Keeper:
    """Has an enforcer do what is to be done, and knows how that went.

    :param changed: called whenever the controller should hear of it.
    :ivar is_failing: whether the kernel is not as it should be.
    """

    def __init__(self, enforcer: edge_enforcer.Enforcer,
                 watch: kernel_events.KernelWatch, audit_interval_s: float,
                 changed: Callable[[], None]):
        self.enforcer = enforcer
        self.is_failing = False
        self._failure: str | None = None
        self._refused: str | None = None
        self.applied_generation = 0
        self._watch = watch
        self._audit_interval_s = audit_interval_s
        self._changed = changed
        self._audit_due_s = 0.0
        self._retry_after_s = _FIRST_RETRY_S

    @property
    def error(self) -> str | None:
        """Why something is not enforced, or was refused.

        A refusal stands until a document is applied, whatever else succeeds.
        """
        return self._failure or self._refused

    def apply(self, policy: edge_policy.EdgePolicy, fair: bool) -> None:
        with self._trying():
            self.enforcer.set_policy(policy, time.monotonic(), fair)
            self._refused = None
        self._watch.wake()  # there may be something to collect

    def set_ports(self, ports: tuple[classify.VmPort, ...]) -> None:
        with self._trying():
            self.enforcer.set_ports(ports, time.monotonic())
        self._watch.wake()

    def make_true(self) -> None:
        """Read the kernel, and put right what is not."""
        with self._trying():
            self.enforcer.reconcile(time.monotonic())

    def refuse(self, why: str) -> None:
        """A document is not applied."""
        if why != self._refused:
            LOG.error('Refused, the old policy stays: %s', why)
        self._refused = why
        self._changed()

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except (exception.VirtcoException, OSError) as error:
            self.failed(error)
            return
        policy = self.enforcer.policy
        self.applied_generation = (policy.generation if policy is not None
                                   else 0)
        self._failure, self.is_failing = None, False
        self._retry_after_s = _FIRST_RETRY_S
        self._changed()

    def failed(self, error: Exception) -> None:
        """Something could not be read or changed: try again soon."""
        why = supervise.describe(error)
        if why != self._failure:
            LOG.error('Not enforced yet: %s', why)
        self._failure, self.is_failing = why, True
        self._audit_due_s = min(self._audit_due_s,
                                time.monotonic() + self._retry_after_s)
        self._changed()

    def turn(self) -> None:
        """Do what is due, and return when there may be something again."""
        # What was lost is put right at once; what goes on being lost, such
        # as port after port by Open vSwitch's restart, in turns.
        if self._tick(time.monotonic()):
            self._watch.pause(TICK_S)
        else:
            self._watch.wait(TICK_S if self.enforcer.is_waiting
                             or self.is_failing else _IDLE_S)

    def _tick(self, now_s: float) -> bool:
        """Whether something had been lost."""
        was_lost = False
        try:
            was_lost = self.enforcer.was_lost(self._watch.changes())
            if was_lost or now_s >= self._audit_due_s:
                self._audit(now_s)
            self.enforcer.collect(now_s)
        except (exception.VirtcoException, OSError) as error:
            self.failed(error)
        return was_lost

    def _audit(self, now_s: float) -> None:
        self._audit_due_s = now_s + self._audit_interval_s
        self.enforcer.forget()
        self.make_true()
        if self.is_failing:
            # A refusal may last: reading everything again has its price.
            self._audit_due_s = now_s + self._retry_after_s
            self._retry_after_s = min(_LAST_RETRY_S, 2 * self._retry_after_s)
