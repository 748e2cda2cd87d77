# SPDX-License-Identifier: Apache-2.0

"""What the command shows of the kernel, and how it ends."""

import contextlib
import dataclasses
import logging
import signal
import types

from msgspec import structs
from oslo_config import cfg
import pytest

from edge_module import cmd
from edge_module import show
from edge_module.classify import classified as classify
from edge_module.qdisc import htb
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco import units

PORTS = (classify.VmPort(vm='a', dev='tap0', mac='', ips=(), ifindex=4),
         classify.VmPort(vm='b', dev='tap1', mac='', ips=(), ifindex=0))


def snapshot(tree, **values):
    """:param values: bytes sent, of all but the link's class."""
    stats = dict.fromkeys(tree, wire.ClassStats(**values))
    return htb.Snapshot(True, None, tree, stats)


@pytest.fixture
def policy():
    return test_tcplan.policy([test_tcplan.coflow(0x10, 5e6)])


@pytest.fixture
def tree(policy):
    return shape.build_tree(policy, test_tcplan.LINK_BPS, ports=(4,))


def test_rows_are_by_the_policy_with_what_is_observed(policy, tree):
    found = {row[0]: row for row in show.rows(
        policy, PORTS, snapshot(tree, sent_bytes=1000),
        snapshot(tree, sent_bytes=3000, backlog_bytes=7, drops=9), 0.5)}
    assert found.keys() == {f'7000:{minor:x}' for minor in tree}
    for row in found.values():
        assert row[5:] == (units.format_rate(8 * 2000 / 0.5),
                           units.format_size(7), '9')
    item = tree[minors.LINK]
    assert found[f'7000:{minors.LINK:x}'][1:5] == (
        'link', str(item.prio), units.format_rate(item.rate_bps),
        units.format_rate(item.ceil_bps))
    assert found[f'7000:{minors.FIRST_PORT + 4:x}'][1] == '  from tap0'
    assert not any('tap1' in row[1] for row in found.values())
    coflow = policy.classes[0]
    assert found['7000:10'][1] == (coflow.name or coflow.coflow_id)
    assert found['7000:11'][1] == f'  to {coflow.destinations[0].host}'


def test_every_class_is_named_in_the_order_of_the_policy():
    named, nameless = (structs.replace(
        test_tcplan.coflow(minor, 5e6, weights), name=name)
        for minor, weights, name in ((0x10, (3.0, 1.0), 'sort'),
                                     (0x20, (), '')))
    policy = structs.replace(test_tcplan.policy([named, nameless]),
                                 unmanaged=test_tcplan.unmanaged({1: 4e6}))
    tree = shape.build_tree(policy, test_tcplan.LINK_BPS, ports=(4,))
    found = show.rows(policy, PORTS, snapshot(tree), snapshot(tree), 1.0)
    assert [row[1] for row in found] == [
        'link', 'host (default)', 'unmanaged', '  from unknown ports',
        '  from tap0', '  to others', '    from tap0',
        '    from unknown ports', '  to h1', '    from tap0',
        '    from unknown ports', 'control packets', '  seen at the uplink',
        '  from tap0', 'sort', '  to h2', '  to h3', 'c32']


def test_classes_of_no_policy_come_last(tree):
    found = list(show.rows(None, (), htb.Snapshot(True, None, {}, {}),
                           snapshot(tree, sent_bytes=1000), 2.0))
    names = [row[1] for row in found]
    n_leaving = names.count('(leaving)')
    assert names[0] == 'link'
    assert n_leaving and names[-n_leaving:] == ['(leaving)'] * n_leaving
    # What is new has sent all of it since.
    assert {row[5] for row in found} == {units.format_rate(4000.0)}


def test_a_name_of_a_tenant_says_nothing_to_the_terminal():
    _, line = show.table([('7000:10', 'a\x1b[2J\x9b1mÄ\n', *'123456')]
                         ).splitlines()
    assert line.split()[:2] == ['7000:10', 'a?[2J?1mÄ?']


def test_a_table_is_aligned():
    row = '7000:10', 'sort', '3', '5 M', '10 M', '4 M', '2 KB', '1'
    head, line = show.table([row]).splitlines()
    assert line.split('  ')[0] == '7000:10'
    for name, cell in (('COFLOW', 'sort'), ('PRIO', '3'), ('DROPS', '1')):
        assert head.index(name) == line.index(cell, head.index(name))
    assert show.table([]).splitlines() == [
        'CLASS  COFLOW  PRIO  RATE  CEIL  OBSERVED  BACKLOG  DROPS']


def enforcer(policy=None, **values):
    return types.SimpleNamespace(
        uplinks=[types.SimpleNamespace(
            uplink=types.SimpleNamespace(dev='eth0'), is_further=False)],
        classifier=types.SimpleNamespace(name='nft'), policy=policy,
        **values)


def test_the_policy_in_words(policy):
    assert show.policy_lines(enforcer()) == (
        'eth0 shaped by htb, classified by nft\nNo policy.')
    assert show.policy_lines(enforcer(policy)).splitlines()[1] == (
        f'{policy.host}, policy {policy.generation}: 1 coflows, '
        f'{len(policy.flows)} flows')


@pytest.mark.parametrize(('found', 'code', 'lines'), [
    ([], 0, ['The kernel holds what the policy says.']),
    (['class', 'entry'], 1, ['class', 'entry'])])
def test_a_check_says_what_differs(monkeypatch, capsys, found, code, lines):
    monkeypatch.setattr(cmd, '_saved_enforcer', lambda conf: conf)
    monkeypatch.setattr(show, 'drift', lambda _enforcer: found)
    monkeypatch.setattr(cmd.netns_lock, 'is_held', lambda: True)
    monkeypatch.setattr(cmd.own_tests, 'problems', lambda _conf: ())
    assert cmd._check(None) == code
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize('ports', [None, (
    dataclasses.replace(PORTS[0], notes=('note',)), PORTS[1])])
def test_rates_are_of_the_time_that_was_waited(monkeypatch, capsys, policy,
                                               tree, ports):
    """Which may be longer than was asked for."""
    seen = [snapshot(tree, sent_bytes=1000), snapshot(tree, sent_bytes=5000)]
    found = enforcer(policy=policy, ports=ports)
    found.uplinks[0].uplink.snapshot = lambda: seen.pop(0)
    monkeypatch.setattr(cmd, '_saved_enforcer', lambda conf: found)
    clock = types.SimpleNamespace(s=100.0, monotonic=lambda: clock.s)
    monkeypatch.setattr(cmd, 'time', clock)

    def sleep(wait_s):
        clock.s += 2 * wait_s

    clock.sleep = sleep
    assert cmd._show(None) == 0
    told = capsys.readouterr().out
    assert told.startswith(show.policy_lines(found) + '\n')
    assert told.count(units.format_rate(8 * 4000 / 2.0)) >= len(tree)
    assert ('from tap0' in told) is bool(ports)
    assert ('tap0 of a: note' in told) is bool(ports)
    # Only a further uplink is named above its table.
    assert 'eth0:' not in told


@pytest.mark.parametrize(('removed', 'text'), [
    (['htb', 'nft'], 'Removed: htb, nft'),
    ([], 'Removed: nothing, there was none')])
def test_a_clean_up_says_what_was_there(monkeypatch, capsys, removed, text):
    made = enforcer(cleanup=lambda: removed)
    monkeypatch.setattr(cmd.factory, 'Parts', lambda *_: (
        types.SimpleNamespace(enforcer=lambda: made)))
    monkeypatch.setattr(cmd.netns_lock, 'hold', contextlib.nullcontext)
    assert cmd._cleanup(None) == 0
    assert capsys.readouterr().out.strip() == text


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the program with a configuration of its own."""
    monkeypatch.setitem(cmd.sys.modules, 'eventlet', None)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def call(text, *argv):
        monkeypatch.setattr(cmd.cfg, 'CONF', cfg.ConfigOpts())
        path = tmp_path / 'edge.conf'
        path.write_text(f'[edge]\n{text}\n')
        return cmd.main(['--config-file', str(path), *argv])

    yield call
    root.handlers[:] = handlers
    root.setLevel(level)


def test_what_the_program_does(run, monkeypatch):
    for code, name in enumerate(('_run', '_check', '_show', '_cleanup'), 7):
        monkeypatch.setattr(cmd, name, lambda conf, code=code: code)
    assert [run('', *argv) for argv in (
        (), ('--check',), ('--show',), ('--cleanup',))] == [7, 8, 9, 10]


def test_without_arguments_those_of_the_process_are_meant(run, monkeypatch,
                                                          tmp_path):
    run('')
    monkeypatch.setattr(cmd.cfg, 'CONF', cfg.ConfigOpts())
    monkeypatch.setattr(cmd.sys, 'argv', [
        'virtco-edge', '--config-file', str(tmp_path / 'edge.conf'),
        '--check'])
    monkeypatch.setattr(cmd, '_check', lambda conf: 5)
    assert cmd.main() == 5


def test_eventlet_is_not_loaded(run, monkeypatch):
    """oslo.privsep would run its helper by it."""
    monkeypatch.delitem(cmd.sys.modules, 'eventlet')
    monkeypatch.setattr(cmd, '_run', lambda conf: 0)
    assert run('') == 0 and cmd.sys.modules['eventlet'] is None


def test_what_went_wrong_is_one_line(run, monkeypatch, capsys):
    assert run('leaf_min_bytes = soon') == 2
    assert 'leaf_min_bytes' in capsys.readouterr().err
    assert run('[DEFAULT]\nlog_config_append = /none/log.ini') == 2
    assert 'the log: ' in capsys.readouterr().err

    def fails(_conf):
        raise exception.OvsUnavailable('away')

    monkeypatch.setattr(cmd, '_run', fails)
    assert run('') == 2
    assert capsys.readouterr().err == 'virtco-edge: away\n'


@pytest.mark.parametrize(('lives', 'code'), [(True, 0), (False, 1)])
def test_the_agent_starts_once_the_switch_answers(monkeypatch, lives, code):
    """And watches the kernel before it gives up its privileges; a signal
    stops it.
    """
    steps = []

    class Parts:
        ports = 'ports'

        def __init__(self, conf, calls):
            steps.append(('parts', calls))

        def wait_ready(self):
            steps.append('ready')

        def enforcer(self):
            return 'enforcer'

    class Agent:
        def __init__(self, conf, *parts):
            steps.append(parts)

        def run(self):
            steps.append('run')
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
            return lives

        def stop(self):
            steps.append('stop')

    @contextlib.contextmanager
    def hold():
        steps.append('lock')
        yield
        steps.append('free')

    def open_kernel(user, helper_user):
        steps.append((user, helper_user))
        return 'calls'

    before = {number: signal.getsignal(number)
              for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(cmd.kernel_events, 'KernelWatch',
                        lambda: steps.append('watch') or 'watch')
    monkeypatch.setattr(cmd.netns_lock, 'hold', hold)
    monkeypatch.setattr(cmd.choice, 'open_kernel', open_kernel)
    monkeypatch.setattr(cmd.factory, 'Parts', Parts)
    monkeypatch.setattr(cmd.own_tests, 'problems', lambda _conf: ())
    monkeypatch.setattr(cmd.own_tests, 'listeners', lambda _conf: ())
    monkeypatch.setattr(cmd.edge_agent, 'Agent', Agent)
    monkeypatch.setattr(cmd.systemd, 'notify', lambda **fields: (
        steps.append(fields)))
    conf = types.SimpleNamespace(edge=types.SimpleNamespace(
        user='u', helper_user='h'))
    try:
        assert cmd._run(conf) == code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert steps == ['watch', 'lock', ('u', 'h'), ('parts', 'calls'),
                     {'STATUS': 'Waiting for the virtual switch'}, 'ready',
                     ('enforcer', 'ports', 'watch'), 'run', 'stop', 'stop',
                     'free']


TAP, GONE = ('tap1', 5), ('tap2', 6)


def table(hooks=(), entries=None, **maps):
    return classify.Table(frozenset(hooks), entries or {}, maps)


def test_each_difference_of_the_classification_is_a_line():
    """It names devices that stand on either side, and others by number."""
    def entry(ifindex, port=0):
        return classify.Entry(ifindex, '10.0.0.1', '10.0.0.2', port)

    have = table([GONE], {entry(6): 17, entry(0): 18, entry(9): 20},
                 control={classify.MapKey(6): 0x9006},
                 to={classify.MapKey(6, 'm'): 1},
                 others={classify.MapKey(9): 1})
    wanted = table([TAP], {entry(5, 80): 17, entry(0): 19},
                   control={classify.MapKey(5): 0x9005},
                   to={classify.MapKey(5, 'm'): 1})
    assert [*show.entry_lines(have, wanted)] == [
        'port tap1 is not classified',
        'port tap2 is classified without need',
        '10.0.0.1 to 10.0.0.2 port 0 at (0): 18 instead of 19',
        '10.0.0.1 to 10.0.0.2 port 80 at tap1: None instead of 17',
        '10.0.0.1 to 10.0.0.2 port 0 at tap2: 17 instead of None',
        '10.0.0.1 to 10.0.0.2 port 0 at (9): 20 instead of None',
        'control packets of tap1 are in another class',
        'control packets of tap2 are in another class',
        'what tap1 sends unmanaged to m is in another class',
        'what tap2 sends unmanaged to m is in another class',
        'what (9) sends unmanaged to others is in another class']
    assert not [*show.entry_lines(have, have)]
