# SPDX-License-Identifier: Apache-2.0

"""Builds policies for tests from few words."""

from virtco.wire import edge_policy


class PolicyBuilder:
    """Collects classes and flows; minors are given out in order."""

    def __init__(self, host, egress_bps, generation=1, default_bps=None,
                 ttl_s=60.0):
        self.host = host
        self.egress_bps = egress_bps
        self.generation = generation
        self.ttl_s = ttl_s
        self.default_bps = default_bps or egress_bps * 0.02
        self.minor = 0x10
        self.classes = []
        self.flows = []
        self.received = []  # (source VM, destination VM)
        self.unmanaged = None

    def coflow(self, name, rate_bps, pairs, *, ceil_bps=None, prio=0,
               ipv6=False, port=None, child_ceil=None):
        """Add a coflow.

        :param pairs: (source VM, destination VM, weight); one destination
            class per destination host.
        """
        ceil_bps = ceil_bps or self.egress_bps
        minor = self._next()
        weights = {}
        for _, dst, weight in pairs:
            weights[dst.host] = weights.get(dst.host, 0) + weight
        total = sum(weights.values())
        children = {}
        for host, weight in weights.items():
            share = weight / total
            children[host] = edge_policy.Destination(
                host, self._next(), share, rate_bps * share,
                min(ceil_bps, child_ceil * share * rate_bps)
                if child_ceil else ceil_bps)
        self.classes.append(edge_policy.CoflowClass(
            name, name, minor, rate_bps, ceil_bps, prio,
            tuple(children.values())))
        for src, dst, _ in pairs:
            self.flows.append(edge_policy.FlowEntry(
                name, src.uuid, src.ip6 if ipv6 else src.ip,
                dst.ip6 if ipv6 else dst.ip, children[dst.host].minor, port))
        return self

    def limit(self, rate_bps, vms, others_bps=2e6):
        """Limit what is sent unmanaged to VMs of one host."""
        slot = len(self.unmanaged.limits) + 1 if self.unmanaged else 1
        before = self.unmanaged.limits if self.unmanaged else ()
        made = ()
        if vms:
            made = edge_policy.DestinationLimit(
                vms[0].host, slot, rate_bps, tuple(vm.mac for vm in vms)),
        self.unmanaged = edge_policy.Unmanaged(others_bps, (),
                                               (*before, *made))
        return self

    def _next(self):
        self.minor += 1
        return self.minor - 1

    def build(self):
        policy = edge_policy.EdgePolicy(
            self.host, self.generation, self.ttl_s, self.egress_bps,
            self.egress_bps, self.default_bps, tuple(self.classes),
            tuple(self.flows), tuple(
                edge_policy.ReceivedPair(src.ip, dst.ip)
                for src, dst in self.received), self.unmanaged)
        return edge_policy.EdgePolicy.from_dict(policy.to_dict())
