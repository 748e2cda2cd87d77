# SPDX-License-Identifier: Apache-2.0

"""The datacentre in operation, with services that the test makes up."""

import signal
import types

import pytest
import requests

from virtco.model import coflow as coflow_model
from virtco.wire import host as host_wire
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import results
from virtco_lab.emulation import testbed as testbed_module

HOSTS = ('h0', 'h1')


class Child:
    def __init__(self, story, name, lines=()):
        self.name, self._lines, self._story = name, list(lines), story
        self.popen = types.SimpleNamespace(
            terminate=lambda: story.append(f'terminate {name}'),
            send_signal=lambda number: story.append(
                f'{signal.Signals(number).name} {name}'))

    def stop(self):
        self._story.append(f'stop {self.name}')

    def has_line(self):
        return bool(self._lines)

    def read_line(self):
        return self._lines.pop(0)

    def pids(self):
        return [len(self.name), 7]


class Fabric:
    control, control_address = 'control', '172.30.0.1'

    def __init__(self, story):
        self._story = story

    def build(self, bed):
        self._story.append(f'build {list(bed.rates_bps.items())}')

    def __getattr__(self, name):
        if name not in ('clear_uplink', 'add_vm', 'remove_vm'):
            raise AttributeError(name)
        return lambda *args: self._story.append(
            ' '.join(map(str, (name, *args))))


class Cloud:
    """Counts to what it is asked for."""

    def __init__(self, story):
        self._story = story

    def _server(self, name, host):
        return types.SimpleNamespace(uuid=name, host=host)

    def create_group(self, name, n_vms, hints, *, flavor):
        self._story.append(f'create {n_vms} {flavor} of {name} {hints}')
        return [self._server(f'{name}-{i}', f'h{i % 2}')
                for i in range(n_vms)]

    def boot(self, name, hosts, flavor):
        self._story.append(f'boot {flavor} of {name} {hosts}')
        return [self._server(f'{name}-{row}', host)
                for row, host in enumerate(hosts)]

    def wait_active(self, servers, note):
        for n in range(len(servers) + 1):
            note(n)
        return servers

    def delete(self, servers, note):
        self._story.append(f'delete {[one.uuid for one in servers]}')
        for n in range(len(servers), 0, -1):
            note(n)


def _entry(host, egress_bps=5.0, ingress_bps=6.0, generation=3,
           last_report=1.0):
    return types.SimpleNamespace(
        host=host, egress_bps=egress_bps, ingress_bps=ingress_bps,
        measured_egress_bps=egress_bps, measured_ingress_bps=None,
        applied_generation=generation, last_report=last_report)


class Controller:
    def __init__(self, url, session=None, timeout_s=None):
        assert timeout_s == 86400
        self.url = url
        assert session.session.trust_env is False
        self.known = [_entry(host) for host in (*HOSTS, 'other')]
        self.pairs, self.policies, self.settings = [], {}, None

    def call(self, operation, host=None, **settings):
        if operation == host_wire.POLICY:
            return self.policies[host]
        if settings:
            self.settings = settings
        return types.SimpleNamespace(hosts=self.known, pairs=self.pairs)


class Pool:
    """Runs at once what it is given."""

    def __init__(self, story):
        self._story = story

    def submit(self, function):
        future = testbed_module.concurrent.futures.Future()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, cancel_futures):
        self._story.append(f'shut down {cancel_futures}')


@pytest.fixture(name='bed')
def _bed(monkeypatch, tmp_path):
    """Makes testbeds; notes what is waited for and what happens."""
    made = types.SimpleNamespace(story=[], waits=[], is_ready=True,
                                 health=[None, 500, 200], options=[],
                                 said=[])
    story = made.story

    def wait_until(condition, what, children, *, of=None, say=None,
                   progress=None, stall_s=60.0, interval_s=0.1):
        made.waits.append((what, of and of.name, stall_s))
        for _ in range(9):
            if progress is not None:
                progress()
            if condition() and made.is_ready:
                return
        raise testbed_module.process.NotReady(what=what, stall_s=stall_s,
                                              said='')

    def start(name):
        def call(*args, options=None):
            story.append(f'start {name}' + (
                f' on {args[1]} at {args[2]:g}' if name == 'edge' else ''))
            if name == 'controller':
                made.options.append(options)
            return Child(story, f'edge-{args[1]}' if name == 'edge' else name,
                         ['{"url": "http://nova"}'] if name == 'nova' else ())
        return call

    module = testbed_module
    monkeypatch.setattr(module.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(module.namespaces, 'scratch_dir', lambda run: tmp_path)
    monkeypatch.setattr(module.namespaces, 'executor', lambda name: (
        Pool(story) if name == 'control' else None))
    monkeypatch.setattr(module.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: story.append('dismiss'))))
    monkeypatch.setattr(module.fabric_module, 'Fabric',
                        lambda run: Fabric(story))
    monkeypatch.setattr(module.v1, 'Client', Controller)
    monkeypatch.setattr(module.process, 'wait_until', wait_until)
    for name in ('nova', 'controller', 'edge'):
        monkeypatch.setattr(module.services, f'start_{name}', start(name))
    monkeypatch.setattr(module.services, 'write_ports', lambda *args: (
        story.append(f'ports of {args[1]}')))

    def planned(controller, hosts, slots, flavors):
        story.append(f'planned {hosts} {slots} {flavors}')
        return Cloud(story)

    def nova(url, timeout_s):
        story.append(f'nova at {url}, {timeout_s:g} s')
        return Cloud(story)

    monkeypatch.setattr(module.planned_cloud, 'PlannedCloud', planned)
    monkeypatch.setattr(module.nova_client, 'NovaClient', nova)

    def get(self, url, timeout):
        assert url == 'http://172.30.0.1:8791/health' and timeout == 86400
        status = made.health.pop(0) if len(made.health) > 1 else (
            made.health[0])
        if status is None:
            raise requests.ConnectionError
        return types.SimpleNamespace(status_code=status)

    monkeypatch.setattr(requests.Session, 'get', get)

    def make(**changes):
        return module.Testbed(module.beds.Bed(**{
            'rates_bps': dict.fromkeys(HOSTS, 8e6), 'link_bps': 8e6,
            'logs': tmp_path / 'a' / 'logs', 'slots': 2, 'has_nova': True}
            | changes), made.said.append)

    made.make = make

    def up(**changes):
        found = make(**changes)
        found.build()
        found.start_services()
        story.clear()
        made.waits.clear()
        return found

    made.up = up
    return made


def test_links_are_built_and_one_of_them_is_slow(bed, tmp_path):
    bed.make(rates_bps={'h0': 8e6, 'h1': 4e6}).build()
    assert (tmp_path / 'a' / 'logs').is_dir()
    assert bed.story == ["build [('h0', 8000000.0), ('h1', 4000000.0)]"]
    assert bed.said == ['building 2 hypervisors, uplinks of 8 Mbit/s']


def test_services_are_started_until_all_answer(bed, tmp_path):
    found = bed.make(controller={'a': {'b': 1}})
    assert found.__enter__() is found
    assert bed.said[1:] == ['starting controller, edge modules and Nova']
    assert bed.story[1:] == [
        'start nova', 'start controller', 'start edge on h0 at 8e+06',
        'start edge on h1 at 8e+06', 'nova at http://nova, 86400 s']
    assert [wait for wait in bed.waits if 'answer' not in wait[0]] == [
        ('the controller to open its port', 'controller', 60.0),
        ('the controller to be ready', 'controller', 60.0),
        ('Nova to be ready', 'nova', 60.0),
        ('a report of every edge module', 'controller', 60.0)]
    assert found.edge_pids() == {'h0': [7, 7], 'h1': [7, 7]}


def test_the_live_page_is_on_loopback_and_led_to_this_machine(
        bed, monkeypatch):
    found = bed.up(has_page=True, controller={'a': {'b': 1}})
    assert found._controller.url == 'http://127.0.0.1:8790'
    assert found._services.url == 'http://172.30.0.1:8791'
    assert bed.make()._controller.url == 'http://172.30.0.1:8791'
    assert bed.options == [{'a': {'b': 1}, **(
        testbed_module.services.page_options(found.fabric))}]
    answers = [requests.ConnectionError(), False, True]
    asked = []

    def get(self, url, timeout):
        asked.append((url, timeout))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return types.SimpleNamespace(ok=answer)

    monkeypatch.setattr(requests.Session, 'get', get)
    monkeypatch.setattr(
        testbed_module.services, 'start_page', lambda fabric, logs: (
            Child(bed.story, 'page'), f'{fabric.control} {logs.name}'))
    assert found.open_page() == 'control logs'
    assert asked == 3 * [('control logs', 86400)]
    assert bed.waits[-1] == ('the live page', 'page', 60.0)
    found.close()
    assert bed.story[0] == 'terminate page'


def test_without_nova_the_controller_is_asked_itself(bed):
    found = bed.make(has_nova=False, slots=3)
    found.build()
    found.start_services()
    assert bed.story[1:] == [
        'start controller', 'start edge on h0 at 8e+06',
        'start edge on h1 at 8e+06',
        "planned ('h0', 'h1') 3 {'slot1': 1, 'slot2': 2, 'slot3': 3}"]
    assert bed.said[1:] == ['starting controller and edge modules']
    assert found.bed.hosts == HOSTS


def test_the_controller_must_be_well_and_every_edge_has_reported(bed):
    bed.health = [500]
    with (pytest.raises(testbed_module.process.NotReady,
                        match='to be ready'), bed.make()):
        pass
    # What was started is ended.
    assert bed.story[-1] == 'dismiss'
    bed.health = [200]
    found = bed.make()
    found._controller.known[1] = _entry('h1', last_report=None)
    found.build()
    with pytest.raises(testbed_module.process.NotReady,
                       match='a report of every edge module'):
        found.start_services()


def test_the_last_is_ended_first_and_all_is_removed(bed):
    with bed.make():
        bed.story.clear()
    children = ['edge-h1', 'edge-h0', 'controller', 'nova']
    assert bed.story == [
        *(f'{verb} {name}' for verb in ('terminate', 'stop')
          for name in children), 'shut down True', 'dismiss']
    bed.story.clear()
    bed.make().close()
    assert bed.story == ['dismiss']


def test_what_ends_badly_is_removed(bed, monkeypatch):
    found = bed.up()

    def fail(_self):
        raise OSError('no')

    monkeypatch.setattr(Child, 'stop', fail)
    with pytest.raises(OSError, match='no'):
        found.close()
    assert bed.story[-1] == 'dismiss'


def test_every_pair_is_measured_or_some_are_not(bed):
    found = bed.up()
    found._controller.pairs = [types.SimpleNamespace(src=src, dst=dst)
                               for src, dst in (HOSTS, HOSTS[::-1])]
    assert found.wait_measured() is True
    assert bed.said[-1] == 'measuring the uplinks with packet trains'
    assert ('a measurement of every pair', 'controller', 30.0) in bed.waits
    found._controller.pairs.pop()
    assert found.wait_measured() is False


def test_what_is_known_of_hosts(bed):
    found = bed.up(rates_bps={'h0': 8e6, 'h1': 4e6})
    assert found.host_rates() == (
        results.HostRate('h0', 8e6, 5.0, None, slow=False),
        results.HostRate('h1', 8e6, 5.0, None, slow=True))
    found._controller.known[0] = _entry('h0', 9.0, 4.0)
    assert found.usable_rates_bps() == {'h0': 4.0, 'h1': 5.0}
    assert found.controller_hosts().keys() == set(HOSTS)
    found.change_settings({'planner': 'p'})
    assert found._controller.settings == {'planner': 'p'}


def test_a_group_is_booted_where_the_cloud_says(bed):
    found = bed.up()
    counts = []
    servers = found.launch('g', 3, 'slot2', {'a': 'b'}, counts.append)
    assert [server.uuid for server in servers] == ['g-0', 'g-1', 'g-2']
    assert bed.story[:4] == [
        "create 3 slot2 of g {'a': 'b'}", 'add_vm g-0 h0',
        'add_vm g-1 h1', 'add_vm g-2 h0']
    assert sorted(bed.story[4:]) == ['ports of h0', 'ports of h1']
    assert bed.waits == [('3 servers for g', 'nova', 60.0)]
    bed.story.clear()
    found.delete(servers[1:], counts.append)
    assert bed.story[:3] == ["delete ['g-1', 'g-2']", 'remove_vm g-1',
                             'remove_vm g-2']
    assert sorted(bed.story[3:]) == ['ports of h0', 'ports of h1']
    assert bed.waits[-1] == ('the end of 2 servers', 'nova', 60.0)


def test_the_last_count_is_told_while_one_waits(bed):
    found = bed.up()
    told, counts = [], []

    def inside(function, what, of, progress):
        assert progress() == -1 and not told
        function()
        counts.append(progress())
        return 'done'

    found.inside = inside
    assert found._ask_cloud(lambda note: (note(3), note(5)), 'x',
                            told.append) == 'done'
    assert (told, counts) == ([5], [5])


def test_slots_are_taken_by_servers_that_send_nothing(bed):
    found = bed.up()
    servers = found.occupy({'h0': 2, 'h1': 0})
    assert bed.story == ["boot slot2 of background-h0 ['h0']"]
    assert [server.uuid for server in servers] == ['background-h0-0']
    found.vacate(servers)
    assert bed.story[-1] == "delete ['background-h0-0']"


def test_edges_stand_still_without_enforcement(bed):
    found = bed.up()
    with pytest.raises(ValueError), found.without_enforcement():
        assert bed.story == ['SIGSTOP edge-h0', 'SIGSTOP edge-h1',
                             'clear_uplink h0', 'clear_uplink h1']
        raise ValueError
    assert bed.story[4:] == ['SIGCONT edge-h0', 'SIGCONT edge-h1']


@pytest.mark.parametrize(('generation', 'wanted', 'is_enforced'), [
    (3, [(0, 1), (1, 0)], True),
    # Flows inside of a host are in no table.
    (3, [(0, 1), (1, 0), (1, 2)], True),
    (3, [(0, 1)], False),
    (3, [(0, 1), (1, 0), (2, 0)], False),
    (2, [(0, 1), (1, 0)], False)])
def test_flows_are_enforced_once_all_edges_know_them_and_no_others(
        bed, generation, wanted, is_enforced):
    found = bed.up()
    found._controller.known[1] = _entry('h1', generation=generation)
    found._services.policies = {
        host: types.SimpleNamespace(generation=3, flows=[
            types.SimpleNamespace(src_ip=src, dst_ip=dst)])
        for host, src, dst in (('h0', 'a', 'b'), ('h1', 'b', 'a'))}
    found.fabric.vms = {vm: fabric_module.VmPort(vm, host, '', '', '', vm)
                        for vm, host in (('a', 'h0'), ('b', 'h1'),
                                         ('c', 'h1'))}
    wanted = [(coflow_model.Coflow.from_flows('c', 3, [
        (*ends, 1.0) for ends in wanted]), [
            types.SimpleNamespace(uuid=vm) for vm in 'abc'])]
    if is_enforced:
        found.wait_enforced(wanted)
        assert ('2 flows in the tables of all edge modules', 'controller',
                60.0) in bed.waits
    else:
        with pytest.raises(testbed_module.process.NotReady):
            found.wait_enforced(wanted)


def test_flows_that_an_edge_forgot_are_waited_for_no_more(bed):
    found = bed.up()
    flows = [types.SimpleNamespace(src_ip='a', dst_ip=dst) for dst in 'bc']
    found._services.policies = {'h0': types.SimpleNamespace(
        generation=3, flows=flows), 'h1': types.SimpleNamespace(
        generation=3, flows=[])}
    seen, wanted = set(), {('h0', 'a', 'b')}
    assert not found._enforced(wanted, seen)
    flows.pop()
    assert found._enforced(wanted, seen) and seen == wanted


def test_an_error_inside_is_told_outside(bed):
    found = bed.up()

    def fail():
        raise KeyError('x')

    with pytest.raises(KeyError):
        found.inside(fail)
    assert found.inside(lambda: 5, 'five') == 5
    assert bed.waits[-1] == ('five', 'controller', 60.0)


def test_names_of_hosts_and_flavors():
    assert testbed_module.beds.host_names(3) == ('h0', 'h1', 'h2')
    assert testbed_module.flavor(2) == 'slot2'


def test_of_vms_on_named_hosts_the_controller_is_told(bed, monkeypatch):
    class Planned(Cloud):
        def boot(self, name, hosts, flavor):
            return [self._server(f'{name}-{host}', host) for host in hosts]

        def tell(self, servers, name, hints):
            self._story.append(
                f'tell {[one.uuid for one in servers]} {name} {hints}')

    monkeypatch.setattr(testbed_module.planned_cloud, 'PlannedCloud',
                        Planned)
    monkeypatch.setattr(testbed_module.nova_client, 'NovaClient',
                        lambda url, timeout_s: Planned(bed.story))
    found = bed.up()
    found.launch('g', 2, 'slot2', {'a': 'b'}, lambda count: None,
                 hosts=('h1', 'h0'))
    assert bed.story[:3] == ["tell ['g-h1', 'g-h0'] g {'a': 'b'}",
                             'add_vm g-h1 h1', 'add_vm g-h0 h0']
