# SPDX-License-Identifier: Apache-2.0

"""An enforcer that takes one change at a time, as tests make them."""

from edge_module import enforcer
from edge_module import show


class Enforcer(enforcer.Enforcer):
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
