# SPDX-License-Identifier: Apache-2.0

"""Coflows of which the controller hears as their tenants please."""

from concurrent import futures
import contextlib
import math
import time
import types

import pytest

from tests.unit.lab.emulation import drawing
from virtco import hints
from virtco.model import coflow as coflow_model
from virtco.scheduling import pilots
from virtco_lab.emulation import cases
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import misled
from virtco_lab.emulation import starvation
from virtco_lab.emulation import traffic
from virtco_lab.emulation import untold
from virtco_lab.sim import claims
from virtco_lab.sim import schemes


def _coflow(name, n_vms, flows, start_s=0.0):
    return claims.Coflow(coflow_model.Coflow.from_flows(name, n_vms, flows),
                         start_s)


COFLOWS = (_coflow('c0', 2, [(0, 1, 1000)]),
           _coflow('c1', 3, [(0, 1, 2000), (1, 2, 0.4)], 1.5))
HOSTS = {'c0': ('h0', 'h1'), 'c1': ('h0', 'h0', 'h1')}


class Cloud:
    def __init__(self, story):
        self._story = story

    def _servers(self, name, hosts):
        return [types.SimpleNamespace(uuid=f'{name}-{i}', host=host)
                for i, host in enumerate(hosts)]

    def create_group(self, name, n_vms, hint, *, flavor, project):
        self._story.append(('create', name, n_vms, flavor))
        self.projects.add(project)
        return self._servers(name, HOSTS[name])

    def boot(self, name, hosts, flavor):
        self._story.append(('boot', name, hosts, flavor))
        return self._servers(name, hosts)

    def wait_active(self, servers, note):
        note(len(servers))
        return servers

    def tell(self, servers, name, hint, project):
        self._story.append(('tell', name, len(servers)))
        self.projects.add(project)


@pytest.fixture(name='bed')
def _bed(monkeypatch, tmp_path):
    """A testbed of which only the parts are there that send."""
    found = untold.Bed.__new__(untold.Bed)
    story = found.story = []
    found._cloud = Cloud(story)
    found._cloud.projects = found.projects = set()
    found.bed = untold.testbed_module.beds.Bed(
        dict.fromkeys(('h0', 'h1'), 8e6), link_bps=8e6, logs=tmp_path)
    found.say = 'say'
    found.jobs = []
    vms = {}

    def add_vm(uuid, host):
        vms[uuid] = fabric_module.VmPort(
            uuid, host, f'ns-{uuid}', '', '', f'ip-{uuid}')

    found.fabric = types.SimpleNamespace(
        control='control', vms=vms, add_vm=add_vm,
        introduce=lambda pairs: story.append(
            ('introduce', sorted((a.vm, b.vm) for a, b in pairs))))
    found.inside = lambda function, *_: function()
    found._nova = None
    found.change_settings = story.append
    found._planner = None
    found._wait = lambda condition, *_: condition()
    found._enforced = lambda pairs, known: story.append(
        ('enforced', sorted(pairs)))
    found.delete = lambda servers: story.append(
        ('delete', [one.uuid for one in servers]))
    found._write_ports = lambda hosts: story.append(('ports', sorted(hosts)))

    @contextlib.contextmanager
    def without_enforcement():
        story.append('unenforced')
        yield

    found.without_enforcement = without_enforcement

    class Transfer:
        def __init__(self, job, log, say):
            assert (log, say) == (tmp_path / 'traffic.log', 'say')
            found.jobs.append(job)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def run(self, on_progress):
            time.sleep(found.lasts_s)
            return types.SimpleNamespace(ccts_s=(1.0, 2.0))

    found.lasts_s = 0.0
    monkeypatch.setattr(untold.namespaces, 'executor', lambda name: (
        futures.ThreadPoolExecutor(name == 'control')))
    monkeypatch.setattr(untold.runner.transfers, 'Transfer', Transfer)
    monkeypatch.setattr(starvation, 'Watch', lambda pids: (
        types.SimpleNamespace(read=lambda: starvation.Usage(0.25, {}))))
    return found


EXACT = [claims.Claim(), claims.Claim()]


def test_the_controller_chooses_where_it_hears_of_all_in_time(bed):
    sent = bed.send(COFLOWS, EXACT)
    assert sent == untold.Sent(HOSTS, (1.0, 2.0), (0.0, 0.0),
                               starvation.Usage(0.25, {}))
    assert bed.story == [
        {'planner': 'spread', 'order': 'mrtf', 'objective': 'online'},
        ('create', 'c0', 2, 'slot1'), ('ports', ['h0', 'h1']),
        ('create', 'c1', 3, 'slot1'), ('ports', ['h0', 'h1']),
        ('enforced', [('h0', 'ip-c0-0', 'ip-c0-1'),
                      ('h0', 'ip-c1-1', 'ip-c1-2')]),
        ('introduce', [('c0-0', 'c0-1'), ('c1-0', 'c1-1'),
                       ('c1-1', 'c1-2')]),
        ('delete', ['c0-0', 'c0-1', 'c1-0', 'c1-1', 'c1-2']),
        ('enforced', [])]
    # Nobody inherits the debts of another.
    assert len(bed.projects) == 2
    job, = bed.jobs
    assert job == traffic.Job((0.0, 1.5), (
        traffic.FlowSpec(0, 'ns-c0-0', 'ns-c0-1', 'ip-c0-1', 5001, 1000),
        traffic.FlowSpec(1, 'ns-c1-0', 'ns-c1-1', 'ip-c1-1', 5001, 2000,
                         'h0'),
        traffic.FlowSpec(1, 'ns-c1-1', 'ns-c1-2', 'ip-c1-2', 5001, 1)),
        window_bytes=traffic.shared_window_bytes(2, 8e6))


def test_who_knows_where_its_vms_are_tells_so(bed):
    bed.send(COFLOWS, [claims.Claim(), claims.Claim(is_sized=False)], HOSTS)
    assert bed.story[1:7] == [
        ('boot', 'c0', ('h0', 'h1'), 'slot1'), ('tell', 'c0', 2),
        ('ports', ['h0', 'h1']),
        ('boot', 'c1', ('h0', 'h0', 'h1'), 'slot1'), ('tell', 'c1', 3),
        ('ports', ['h0', 'h1'])]
    # Of one without sizes each pair between hosts is known.
    assert bed.story[7] == ('enforced', sorted([
        ('h0', 'ip-c0-0', 'ip-c0-1'), ('h0', 'ip-c1-0', 'ip-c1-2'),
        ('h0', 'ip-c1-1', 'ip-c1-2'), ('h1', 'ip-c1-2', 'ip-c1-0'),
        ('h1', 'ip-c1-2', 'ip-c1-1')]))


def test_a_late_coflow_is_told_while_bytes_move(bed):
    bed.lasts_s = 0.2
    coflows = (COFLOWS[0], _coflow('c1', 3, [(1, 2, 5)], 0.04))
    sent = bed.send(coflows, [claims.Claim(late_s=0.02), claims.Claim(
        late_s=0.01)], HOSTS)
    assert ('enforced', []) in bed.story[:7]
    told = [line for line in bed.story[1:] if line[0] == 'tell']
    assert told == [('tell', 'c0', 2), ('tell', 'c1', 3)]
    first_s, second_s = sent.told_s
    assert 0.02 <= first_s <= second_s and second_s >= 0.05


def test_sizes_of_a_launched_group_are_announced_late(bed):
    bed.lasts_s = 0.1
    bed._controller = types.SimpleNamespace(
        call=lambda _operation, *given: bed.story.append(
            ('announce', *given)))
    sent = bed.send(COFLOWS, [claims.Claim(), claims.Claim(
        0.5, late_s=-1.48, is_launched=True)], HOSTS)
    assert [line for line in bed.story[1:] if line[0] in (
            'tell', 'announce')] == [
        ('tell', 'c0', 2), ('tell', 'c1', 3),
        ('announce', 'c1', 'told', misled.hint(claims.Coflow(
            coflow_model.Coflow.from_flows('told', 3, [
                (0, 1, 1000), (1, 2, 0.2)]), 0.0), claims.Claim())[hints.TM])]
    # Its pairs are known before its bytes move, those of all its VMs.
    enforced = next(line for line in bed.story[1:] if line[0] == 'enforced')
    assert ('h1', 'ip-c1-2', 'ip-c1-0') in enforced[1]
    assert sent.told_s[0] == 0.0 and 0.02 <= sent.told_s[1] < math.inf


def test_what_is_told_too_late_is_never_told(bed):
    sent = bed.send(COFLOWS, [claims.Claim(), claims.Claim(
        late_s=claims.NEVER_S)], HOSTS)
    assert sent.told_s == (0.0, math.inf)
    assert ('tell', 'c1', 3) not in bed.story


def test_an_error_of_the_telling_is_told(bed):
    bed.lasts_s = 0.1

    def fail(*_words):
        raise KeyError('x')

    bed._cloud.tell = fail
    with pytest.raises(KeyError):
        bed.send(COFLOWS, [claims.Claim(late_s=0.0)] * 2, HOSTS)


def test_fair_sharing_is_without_the_edges(bed):
    bed.send(COFLOWS, EXACT, scheme=schemes.Scheme('f', 'f', 'spread',
                                                   'fair'))
    assert bed.story.count('unenforced') == 1


def test_coflows_and_claims_are_drawn_as_ever():
    scale = cases.Scale(8, 20e6)
    found = {}
    for seed in (0, 3):
        coflows = misled.workload(seed, scale)
        found[f'coflows {seed}'] = [
            [one.start_s, one.coflow.name, one.coflow.n_vms, *(
                [flow.src, flow.dst, flow.size_bytes]
                for flow in one.coflow.flows)] for one in coflows]
        found[f'liar {seed}'] = misled.liar(coflows)
        for setting in (*misled.SPOILS, *misled.LATE, *misled.UNSIZED,
                        'lie 3'):
            found[f'{setting} {seed}'] = [
                [one.factor, one.is_sized, one.late_s]
                for one in misled.of_setting(setting, seed, coflows)]
        hosts = {one.coflow.name: [f'h{(i + j) % 8}' for j in range(
            one.coflow.n_vms)] for i, one in enumerate(coflows)}
        found[f'window {seed}'] = misled._window_bytes(coflows, hosts, scale)
        found[f'expected {seed}'] = misled.expect(
            coflows[:2], misled.of_setting('50 % wrong', seed, coflows[:2]),
            hosts, [0.0, 0.5], scale)
    assert coflows[0].coflow.dst_port == 5001
    drawing.check('misled', found)


def test_a_hint_without_sizes_is_guessed_for_all_pairs():
    found = claims.unsized(COFLOWS[1].coflow)
    assert found.is_estimated and found.iterations == 0
    assert {(flow.src, flow.dst) for flow in found.flows} == {
        (src, dst) for src in range(3) for dst in range(3) if src != dst}
    assert {flow.size_bytes for flow in found.flows} == {
        pilots.FIRST_GUESS_BYTES}
