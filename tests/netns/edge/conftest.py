# SPDX-License-Identifier: Apache-2.0

"""Beds and enforcers for the tests of this directory."""

import functools
import pathlib
import socket
import tempfile
import time

import pytest

from edge_module.classify import bpf
from edge_module.classify import classified as classify
from edge_module.classify import nft
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from tests import enforcers
from tests import run_name
from tests.netns.edge import bed as beds

LINK_BPS = 40e6
CLASSIFIERS = {'bpf': bpf.BpfClassifier, 'nft': nft.NftClassifier}


class Edge:
    """An enforcer whose calls are made inside a hypervisor's namespace."""

    def __init__(self, bed, host, link_bps=LINK_BPS, how='bpf', **kwargs):
        self.bed = bed
        self.netns = bed.ns(host)
        self.host = host
        self.enforcer = enforcers.Enforcer(
            htb.Uplink(kernel, 'uplink0'), CLASSIFIERS[how](kernel),
            **{'speed_bps': lambda: link_bps, **kwargs})

    def call(self, name, *args):
        return beds.in_netns(self.netns, getattr(self.enforcer, name), *args)

    def set_ports(self):
        def ports():
            return tuple(classify.VmPort(
                vm.uuid, vm.dev, socket.if_nametoindex(vm.dev), '',
                tuple(vm.ips)) for vm in self.bed.vms
                if vm.host == self.host)
        self.call('set_ports', beds.in_netns(self.netns, ports),
                  time.monotonic())

    def set_policy(self, policy, n_past=0):
        self.call('set_policy', policy, time.monotonic(), n_past)

    def stats(self):
        """Counters by minor."""
        return beds.in_netns(self.netns, self.enforcer.uplink.snapshot).stats

    def counted(self):
        """Counters of the classifier's entries."""
        return beds.in_netns(self.netns, self.enforcer.classifier.counted)


@pytest.fixture
def make_bed():
    made = []

    def make(hosts=2):
        made.append(beds.Bed(hosts))
        return made[-1]

    yield make
    for bed in made:
        bed.close()


@pytest.fixture
def how(request):
    """What classifies."""
    return getattr(request, 'param', 'bpf')


@pytest.fixture
def edge_of(how):
    """Makes an enforcer for a host of a bed."""
    return functools.partial(Edge, how=how)


@pytest.fixture
def open_path():
    """A directory that processes without privileges may enter too.

    Not below pytest's own: it closes that to others whenever a run begins.
    """
    with tempfile.TemporaryDirectory(prefix=run_name.PREFIX) as name:
        path = pathlib.Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def pair(make_bed, edge_of):
    """Two hypervisors, the first with an enforcer."""
    bed = make_bed(2)
    return bed, edge_of(bed, 'h1')
