# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What only the BPF backend can get wrong: pins, ports, and whose they are."""

import shutil

import pytest

from edge_module.classify import bpf as classify_bpf
from edge_module.classify import bpf_program
from edge_module.classify import nft
from edge_module.privileged import kernel
from tests.netns.edge import bed as beds
from tests.netns.edge import policies
from virtco import exception

LINK_BPS = 40e6

pytestmark = [pytest.mark.netns, pytest.mark.parametrize('backend', ['bpf'])]


def _policy(a, b, minor=0x10, generation=1):
    builder = policies.PolicyBuilder('h1', LINK_BPS, generation)
    builder.minor = minor
    return builder.coflow('C1', 5e6, [(a, b, 1)]).build()


@pytest.fixture
def site(pair):
    """A VM with an entry, and another hypervisor's one."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(_policy(a, b))
    return bed, edge, a, b


def _filters(bed, vm, direction='ingress'):
    return beds.run('tc', 'filter', 'show', 'dev', vm.dev, direction,
                    netns=bed.ns('h1'))


def _qdiscs(bed, vm):
    return beds.run('tc', 'qdisc', 'show', 'dev', vm.dev, netns=bed.ns('h1'))


def _transfer(a, b):
    """Bytes that one entry counts."""
    flow = beds.Flow(a, b, size_bytes=200_000).start()
    beds.wait_for(lambda: flow.done_s, 15, 'the end of a flow')
    flow.close()


def _counted(edge):
    return sum(item.sent_bytes for item in edge.counted().values())


def test_restart_finds_program_entries_and_counters(site, edge_of):
    bed, edge, a, b = site
    _transfer(a, b)
    before, counted = _filters(bed, a), _counted(edge)
    assert counted > 200_000
    again = edge_of(bed, 'h1')
    again.set_ports()
    again.set_policy(_policy(a, b))
    assert _filters(bed, a) == before  # the same program, not loaded again
    assert _counted(again) == counted
    assert not again.call('drift')


def test_pins_that_somebody_removed_are_made_again(site, bpf_dir):
    bed, edge, a, b = site
    shutil.rmtree(bpf_dir)
    assert edge.call('drift')
    edge.call('forget')
    edge.set_policy(_policy(a, b))
    assert not edge.call('drift')
    _transfer(a, b)
    assert _counted(edge) > 200_000


def test_another_program_takes_over(site, edge_of, monkeypatch):
    """As after an upgrade: the filter is replaced in place."""
    bed, edge, a, b = site
    before = _filters(bed, a)
    other = bpf_program.build()[:-16] + bytes(
        [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]) * 2 + bpf_program.build()[
        -8:]
    monkeypatch.setattr(classify_bpf, '_program', lambda: other)
    again = edge_of(bed, 'h1')
    again.set_ports()
    again.set_policy(_policy(a, b))
    after = _filters(bed, a)
    assert after != before and after.count('direct-action') == 1
    _transfer(a, b)
    assert _counted(again) > 200_000


@pytest.mark.parametrize('name', ['bpf_update', 'bpf_attach', 'bpf_delete'])
def test_restart_after_a_kill_inside_the_update(site, edge_of, name,
                                                monkeypatch):
    """Before and after each call every entry names a class that is there."""
    bed, edge, a, b = site
    late = bed.add_vm('h1')

    class Killed(BaseException):
        pass

    def die(*args):
        raise Killed

    real = getattr(kernel, name)
    monkeypatch.setattr(kernel, name, die)
    builder = policies.PolicyBuilder('h1', LINK_BPS, 2)
    builder.minor = 0x20
    after = builder.coflow('C2', 5e6, [(late, b, 1)]).build()
    with pytest.raises(Killed):
        edge.set_policy(after)
        edge.set_ports()
    monkeypatch.setattr(kernel, name, real)
    left = edge_of(bed, 'h1')
    tree = beds.in_netns(left.netns, left.enforcer.uplink.snapshot).tree
    table, _ = beds.in_netns(left.netns, left.enforcer.classifier.dump)
    assert set(table.entries.values()) <= set(tree)
    left.set_ports()
    left.set_policy(after)
    drift = left.call('drift')
    assert not drift.entries, drift


def test_filters_and_qdiscs_of_others_stay(pair):
    bed, edge = pair
    a, b, free = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    netns = bed.ns('h1')
    beds.run('tc', 'qdisc', 'add', 'dev', a.dev, 'clsact', netns=netns)
    edge.set_ports()
    edge.set_policy(_policy(a, b))
    # Somebody comes later to a port whose qdisc is ours.
    beds.run('tc', 'filter', 'add', 'dev', free.dev, 'egress', 'pref', '7',
             'protocol', 'ip', 'u32', 'match', 'u32', '0', '0', 'flowid',
             '1:1', netns=netns)
    assert 'virtco' in _filters(bed, a) and 'virtco' in _filters(bed, free)
    assert edge.call('cleanup') == ['bpf classification', 'HTB of uplink0']
    assert _filters(bed, a) == '' and 'clsact' in _qdiscs(bed, a)
    assert _filters(bed, free) == ''
    assert 'pref 7' in _filters(bed, free, 'egress')


def test_cleanup_leaves_edge_modules_of_other_namespaces_alone(site,
                                                               edge_of):
    bed, edge, a, b = site
    other = edge_of(bed, 'h2')
    other.set_ports()
    other.set_policy(_policy(b, a))
    assert 'bpf classification' in other.call('cleanup')
    assert not edge.call('drift') and len(edge.counted()) == 1


def test_cleanup_leaves_no_trace(site, bpf_dir):
    bed, edge, a, b = site
    assert bpf_dir.exists()
    edge.call('cleanup')
    assert not bpf_dir.exists()
    assert _filters(bed, a) == '' and 'clsact' not in _qdiscs(bed, a)
    assert edge.call('cleanup') == []


def test_qdisc_stays_ours_when_the_filter_was_lost(site):
    bed, edge, a, b = site
    beds.run('tc', 'filter', 'del', 'dev', a.dev, 'ingress',
             netns=bed.ns('h1'))
    assert edge.call('drift')
    edge.call('forget')
    edge.set_policy(_policy(a, b))
    assert not edge.call('drift')
    edge.call('cleanup')
    assert 'clsact' not in _qdiscs(bed, a)


def _unmanaged(edge):
    stats = edge.stats()
    return stats[2].sent_bytes + stats[3].sent_bytes


def test_other_backend_is_retired(site):
    """From nft to bpf and back under a transfer that fills no queue."""
    bed, edge, a, b = site
    bpf = edge.enforcer.classifier
    table = nft.NftClassifier(kernel)
    flow = beds.Flow(a, b, pacing_bps=3e6).start()
    before = _unmanaged(edge)
    for at_s, chosen, other in ((0.5, table, bpf), (1.0, bpf, table)):
        beds.wait_for(lambda: flow.now_s() > at_s)
        edge.enforcer.classifier = chosen
        edge.enforcer.retired = [other]
        edge.call('forget')
        edge.set_policy(_policy(a, b))
    beds.wait_for(lambda: flow.now_s() > 1.5)
    flow.close()
    # Nothing of it was without its class in between.
    assert _unmanaged(edge) - before < 3000
    assert beds.run('nft', 'list', 'ruleset', netns=bed.ns('h1')) == ''
    assert 'virtco' in _filters(bed, a)


def test_too_many_entries_are_refused_whole(site, monkeypatch):
    bed, edge, a, b = site
    monkeypatch.setattr(bpf_program, 'MOST_ENTRIES', 1)
    builder = policies.PolicyBuilder('h1', LINK_BPS, 2)
    builder.coflow('C1', 5e6, [(a, b, 1)]).coflow('C2', 5e6, [(b, a, 1)])
    builder.coflow('C3', 5e6, [(a, b, 1)], port=7)
    with pytest.raises(exception.Invalid, match='2 is not acceptable'):
        edge.set_policy(builder.build())
    assert len(edge.counted()) == 1


def test_kernel_refusal_says_why(pair, tmp_path):
    """A directory on another file system cannot hold pins."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.enforcer.classifier.bpf_dir = str(tmp_path / 'pins')
    edge.set_ports()
    with pytest.raises(exception.KernelRefused, match='bpf_dir'):
        edge.set_policy(_policy(a, b))
