# SPDX-License-Identifier: Apache-2.0

"""An enforcer that takes one change at a time, as tests make them."""

from edge_module import enforcer
from edge_module import shaper
from edge_module import show


def _change(classes, current):
    """What is done to classes: some become slower, or none does."""
    return 'lower' if any(item.rate_bps < current[item.minor].rate_bps
                          for item in classes if item.minor in current
                          ) else 'rise'


class Enforcer(enforcer.Enforcer):
    """:ivar step: called with the name of each step before it is made."""

    def __init__(self, *args, step=lambda name: None,
                 grace_s=shaper.GRACE_S, **kwargs):
        super().__init__(*args, **kwargs)
        self.step, self.grace_s = step, grace_s
        for maker, method, name in (
                (self.uplink, 'ensure_root', lambda *seen: 'root'),
                (self.uplink, 'set_classes', _change),
                (self.uplink, 'delete_classes', lambda minors: 'delete'),
                (self.classifier, 'replace', lambda table: 'classify')):
            self._tell_of(maker, method, name)
        if self.receiver is not None:
            self.receive_by(self.receiver)

    def receive_by(self, receiver):
        self.receiver = receiver
        self._tell_of(receiver, 'ensure', lambda policy: 'receive')

    def _tell_of(self, maker, method, name):
        make = getattr(maker, method)

        def told(*args):
            self.step(name(*args))
            return make(*args)

        setattr(maker, method, told)

    def set_policy(self, policy, now_s, n_past=0):
        self._is_stale = True  # the test may have changed a part
        self.sync(policy, n_past, self.ports, now_s)

    def set_ports(self, ports, now_s):
        self.sync(self.policy, self.n_past, tuple(ports), now_s)

    def collect(self, now_s):
        self.sync(self.policy, self.n_past, self.ports, now_s)

    def reconcile(self, now_s):
        self.forget()
        self.collect(now_s)

    def drift(self):
        return show.drift(self)
