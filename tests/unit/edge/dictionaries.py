# SPDX-License-Identifier: Apache-2.0

"""An uplink and a classifier whose kernel is a dictionary."""

import contextlib

from edge_module.classify import classified as classify
from edge_module.classify import nft
from edge_module.qdisc import htb
from edge_module.qdisc import wire
from edge_module.tcplan import model
from virtco import exception


class Kernel:
    """Holds nothing."""

    def tc_change(self, changes):
        return []

    def tc_dump(self, message):
        return []

    def cpu_s(self):
        return 7.0

    def alive(self):
        return True

    def bpf_missing(self):
        return None


class Uplink(htb.Uplink):
    """Classes stand as the enforcer set them.

    :ivar seen: counters of classes; those that stand have none else.
    :ivar around: classes around the tree, by minor.
    :ivar refuses: names of methods that the kernel refuses.
    :ivar asked: names of methods in the order of their calls.
    """

    def __init__(self, dev='up1'):
        super().__init__(Kernel(), dev)
        self.index, self.longest_bytes = 7, 1564
        self.present, self.foreign, self.is_inside = False, None, False
        self.tree, self.seen, self.around = {}, {}, {}
        self.refuses, self.asked = set(), []
        self.most_bps = 0

    def _ask(self, name):
        self.asked.append(name)
        if name in self.refuses:
            raise exception.KernelRefused(what=name, count=1, why='told to')

    def ifindex(self):
        if not self.index:
            raise exception.NotFound(what='uplink device', id=self.dev)
        return self.index

    def frame_bytes(self, *ports):
        self.ifindex()
        with contextlib.suppress(exception.NotFound):
            return max(self.longest_bytes, super().frame_bytes(*ports))
        return self.longest_bytes

    def snapshot(self):
        self._ask('snapshot')
        return htb.Snapshot(self.present, self.foreign, dict(self.tree),
                            self.stats(), self.is_inside, self.around)

    def stats(self, with_drops=True):
        if not with_drops:
            return self.class_stats()
        return {minor: self.seen.get(minor, wire.ClassStats())
                for minor in self.tree}

    def class_stats(self):
        self._ask('class_stats')
        return self.stats()

    def ensure_root(self, seen=None):
        self._ask('ensure_root')
        self.present = True
        self.is_inside |= self.is_shared

    def set_classes(self, classes, current):
        self._ask('set_classes')
        for item in classes:
            assert item.parent in self.tree or item.parent == 0
            self.tree[item.minor] = item
            self.most_bps = max(self.most_bps,
                                model.guaranteed_bps(self.tree))

    def delete_classes(self, minors):
        self._ask('delete_classes')
        for minor in minors:
            assert all(item.parent != minor for item in self.tree.values())
            self.tree.pop(minor, None)

    def delete_root(self):
        was, self.present, self.tree = self.present, False, {}
        return was


class Classifier(nft.NftClassifier):
    """Its table is what it was given.

    :ivar forgot: how often it was told to.
    """

    name = 'dictionary'

    def __init__(self):
        self.table, self.forgot, self.refused = None, 0, {}
        self.uplink_dev = self.reason = None
        self.counts, self.peer_counts, self.macs = {}, {}, frozenset()
        self.data_counts = {}
        self.readings = []

    def replace(self, table):
        self.table = table
        return 0

    def forget(self):
        self.forgot += 1

    def destinations(self):
        return self.macs

    def received(self):
        self.readings.append('received')
        return self.data_counts

    def dump(self):
        return self.table or classify.Table()

    def counted(self):
        self.readings.append('pairs')
        return self.counts

    def ports(self):
        return [ifindex for _, ifindex in self.table.hooks]

    def peers(self, ifindexes=None):
        self.readings.append('peers' if ifindexes is None else
                             ('peers', *ifindexes))
        return self.peer_counts

    def remove(self):
        was, self.table = self.table is not None, None
        return was
