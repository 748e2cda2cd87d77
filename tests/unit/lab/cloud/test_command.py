# SPDX-License-Identifier: Apache-2.0

"""``tools/cloud`` without a cloud, or with one that the test makes up."""

import io
import os
import pathlib
import signal
import subprocess
import sys
import types

import pytest
from rich import console as rich_console

from tests.unit.lab.cloud import made
from virtco_lab.cloud import command
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import process


class Cloud:
    """Notes what is run; the test says what is up."""

    def __init__(self, home, monkeypatch, capsys):
        self.layout = None
        self.is_stale = False
        self.ran, self.swept = [], 0
        self.status = 0
        self.home = home
        self.progress = home / 'progress'
        self._capsys = capsys
        monkeypatch.setattr(layouts, 'load', lambda: self.layout)
        monkeypatch.setattr(command, '_PROGRESS', self.progress)
        monkeypatch.setattr(command.namespaces, 'is_stale',
                            lambda run: self.is_stale or run != 'abc123')
        monkeypatch.setattr(command.namespaces, 'sweep', self._sweep)
        monkeypatch.setattr(command.namespaces, 'call',
                            lambda _name, function: function())
        monkeypatch.setattr(command.subprocess, 'run', self._run)
        monkeypatch.setattr(command.time, 'sleep', lambda _s: None)
        monkeypatch.setattr(os, 'geteuid', lambda: 0)

    def _sweep(self):
        self.swept += 1
        return []

    def _run(self, argv, env):
        self.ran.append((argv, env))
        return types.SimpleNamespace(returncode=self.status)

    def up(self, **changes):
        (self.home / 'cloud').mkdir()
        self.layout = made.layout(self.home / 'cloud', **changes)

    def __call__(self, *words):
        code = command.main(list(words))
        self.out = self._capsys.readouterr().out
        return code


@pytest.fixture(name='cloud')
def _cloud(tmp_path, monkeypatch, capsys):
    return Cloud(tmp_path, monkeypatch, capsys)


NONE = 'No cloud is up; tools/cloud up starts one.\n'


@pytest.mark.parametrize('words', [
    ('openstack', 'server', 'list'), ('vm', 'a', 'true'),
    ('edge', 'compute1'), ('demo',)])
def test_without_a_cloud_nothing_is_run(cloud, words):
    assert cloud(*words) == 1
    assert cloud.out == NONE and not cloud.ran
    # Its keeper was killed.
    cloud.up()
    cloud.is_stale = True
    assert cloud(*words) == 1
    assert cloud.out == NONE and not cloud.ran


def test_words_reach_the_clients_in_the_control_namespace(cloud):
    cloud.up()
    cloud.status = 7
    assert cloud('openstack', 'server', 'list', '--long') == 7
    (argv, env), = cloud.ran
    assert argv == ['nsenter', '--net=/run/netns/virtco-emu-abc123-control',
                    'openstack', 'server', 'list', '--long']
    assert (env['OS_USERNAME'], env['OS_AUTH_URL']) == (
        'admin', 'http://127.0.0.1:5000/v3')
    # Programs of this very installation come first.
    assert env['PATH'] == (f'{pathlib.Path(sys.executable).parent}:'
                           f'{os.environ["PATH"]}')
    cloud('virtco', 'coflow', 'list')
    assert cloud.ran[-1][0][2:] == [
        'virtco', '--os-auth-type', 'password', '--controller-url',
        'https://127.0.0.1:8791', 'coflow', 'list']
    cloud('exec', 'curl', '-v', 'x')
    assert cloud.ran[-1][0][2:] == ['curl', '-v', 'x']
    assert cloud('exec') == 2
    assert cloud.out == 'exec: name a command\n'


def test_a_command_runs_in_a_vm(cloud, monkeypatch):
    cloud.up()
    servers = [types.SimpleNamespace(name=name, id=f'{name * 8}-0123-4567')
               for name in 'ab']
    asked = []

    def list_servers(**filters):
        asked.append(filters)
        return servers

    monkeypatch.setattr(command.accounts, 'connect', lambda layout: (
        types.SimpleNamespace(compute=types.SimpleNamespace(
            servers=list_servers))))
    assert cloud('vm', 'b', 'ping', '-c', '1', 'x') == 0
    (argv, env), = cloud.ran
    assert argv == ['nsenter',
                    '--net=/run/netns/virtco-emu-abc123-vmbbbbbbbb0123',
                    'ping', '-c', '1', 'x']
    assert env['OS_USERNAME'] == 'demo'
    assert asked == [{'all_projects': True}]
    assert cloud('vm', 'c', 'true') == 1
    assert cloud.out == 'There is no VM c; there are: a, b.\n'
    servers.clear()
    assert cloud('vm', 'c', 'true') == 1
    assert cloud.out == 'There is no VM c; there are: none.\n'
    assert cloud('vm', 'a') == 2
    assert cloud.out == 'vm: name a command\n'
    assert len(cloud.ran) == 1


def test_an_edge_module_is_asked_where_it_runs(cloud):
    cloud.up()
    assert cloud('edge', 'compute2', '--show') == 0
    (argv, _env), = cloud.ran
    assert argv == [
        'nsenter', '--net=/run/netns/virtco-emu-abc123-compute2',
        process.script('virtco-edge'), '--config-file',
        f'{cloud.home}/cloud/etc/edge-compute2/edge-compute2.conf', '--show']
    assert cloud('edge', 'compute3') == 1
    assert cloud.out == ('There is no hypervisor compute3; there are: '
                         'compute1, compute2.\n')
    assert len(cloud.ran) == 1


def test_a_demo_says_what_is_wrong(cloud, monkeypatch):
    cloud.up()
    demo = pytest.importorskip('virtco_lab.cloud.demo')
    monkeypatch.setattr(demo, 'show', lambda layout, out: 5 if (
        layout is cloud.layout) else 6)
    assert cloud('demo') == 5

    def fail(_layout, _out):
        raise demo.NotReached(what='[b]', limit_s=9, now='[/b]')

    monkeypatch.setattr(demo, 'show', fail)
    # A terminal that would show numbers in colour.
    for name, value in (('FORCE_COLOR', '1'), ('TERM', 'xterm')):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv('NO_COLOR', raising=False)
    assert cloud('demo') == 1
    assert cloud.out == '[b] did not happen within 9 s; it is [/b].\n'


# Up and down.

@pytest.fixture(name='keeper')
def _keeper(cloud, monkeypatch):
    """Starts a program that writes these lines to the file of progress."""
    started = types.SimpleNamespace(lines='', status=0, argv=[])
    popen = subprocess.Popen

    def start(argv, **options):
        started.argv.append(argv[3:])
        assert argv[:3] == [sys.executable, '-m', 'virtco_lab.cloud.command']
        assert options['start_new_session']
        # What an earlier one said is forgotten.
        assert not cloud.progress.exists()
        started.child = popen(
            ['sh', '-c', f'printf "{started.lines}" >{cloud.progress}; '
             f'[ {started.status} = forever ] && sleep 60; '
             f'exit {started.status}'], **options)
        return started.child

    monkeypatch.setattr(command.subprocess, 'Popen', start)
    return started


def test_a_cloud_that_is_up_is_not_started_again(cloud, keeper):
    cloud.up()
    assert cloud('up') == 1
    assert cloud.out == (
        'A cloud is up already; tools/cloud down ends it.\n')
    assert not keeper.argv and not cloud.swept
    cloud.is_stale = True
    cloud.progress.write_text('ready\n')
    keeper.lines, keeper.status = 'failed: why\n', 3
    assert cloud('up') == 3


def test_what_its_keeper_says_is_shown_until_it_is_up(cloud, keeper):
    keeper.lines = r'    1 s  network\n    2 s  [stores]\nready\nmore\n'
    assert cloud('up', '--computes', '64', '--slots', '1', '--rate',
                 '10Mbit/s', '--backend', 'ovn') == 0
    keeper.child.wait()
    assert keeper.argv == [['keep', '--computes', '64', '--slots', '1',
                            '--rate', '10000000', '--backend', 'ovn']]
    assert '    1 s  network\n    2 s  [stores]\nThe cloud is up.' in cloud.out
    assert cloud.out.count('network') == 1 and 'more' not in cloud.out
    assert cloud.swept == 1


def test_a_line_looks_as_the_keeper_wrote_it_and_is_beside_the_bar(cloud):
    cloud.progress.write_text('  1 s  network 10.0.0.1\nready\n')
    out = rich_console.Console(file=io.StringIO(), force_terminal=True,
                               color_system='standard', width=80)
    said = []
    assert command._follow(types.SimpleNamespace(poll=lambda: None), out,
                           types.SimpleNamespace(update=said.append)) == 0
    assert said == ['1 s  network 10.0.0.1 … next']
    assert out.file.getvalue().startswith('  1 s  network 10.0.0.1\n')


@pytest.mark.parametrize(('status', 'code'), [(0, 1), (4, 4)])
def test_a_keeper_that_ends_has_failed(cloud, keeper, status, code):
    keeper.lines, keeper.status = r'failed: why\n', status
    assert cloud('up') == code
    assert 'failed: why\n' in cloud.out


def test_a_start_that_is_interrupted_is_ended(cloud, keeper, monkeypatch):
    keeper.status = 'forever'

    def interrupt(_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.time, 'sleep', interrupt)
    assert cloud('up') == 130
    assert keeper.child.returncode == -signal.SIGTERM


def test_down_without_a_cloud_removes_what_is_left(cloud):
    cloud.progress.touch()
    assert cloud('down') == 0
    assert cloud.out == 'No cloud is up.\n'
    assert not cloud.progress.exists() and cloud.swept == 1


def test_down_removes_what_a_keeper_that_was_killed_left(cloud):
    cloud.up()
    cloud.is_stale = True
    for _ in range(2):
        assert cloud('down') == 0
        assert not cloud.layout.home.exists()


@pytest.mark.parametrize(('trap', 'limit_s', 'is_gentle'), [
    ('echo told >{told}; exit', 60, True), ('', 0, False)])
def test_a_keeper_is_told_to_end_and_killed_where_it_does_not(
        cloud, monkeypatch, trap, limit_s, is_gentle):
    monkeypatch.setattr(command, '_DOWN_S', limit_s)
    told = cloud.home / 'told'
    code = f"trap '{trap.format(told=told)}' TERM; echo; read word; sleep 60"
    with subprocess.Popen(['sh', '-c', code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        cloud.up(pid=process.pid)
        assert cloud('down') == 0
        process.wait(10)
    assert told.exists() is is_gentle
    # What is there is the keeper's to remove.
    assert cloud.layout.home.exists()
    assert cloud.swept == 1


def test_a_keeper_keeps_what_it_is_told(cloud, monkeypatch):
    kept = []

    def keep(*words):
        kept.append(words)
        return 9

    monkeypatch.setattr(command.keeper, 'keep', keep)
    assert cloud('keep') == 9
    assert cloud('keep', '--computes', '1', '--slots', '64', '--rate',
                 '8Mbit', '--backend', 'ovn') == 9
    assert kept == [(6, 2, 50e6, cloud.progress, 'bridge'),
                    (1, 64, 8e6, cloud.progress, 'ovn')]


def test_a_rate_that_is_none_is_named(capsys):
    for action in ('up', 'keep'):
        with pytest.raises(SystemExit) as caught:
            command._parser().parse_args([action, '--rate', 'fast'])
        assert caught.value.code == 2
        assert 'argument --rate: ' in capsys.readouterr().err


@pytest.mark.parametrize(('number', 'is_fine'), [
    ('0', False), ('1', True), ('64', True), ('65', False)])
def test_a_cloud_has_1_to_64_hypervisors(number, is_fine, capsys):
    for name in ('--computes', '--slots'):
        if is_fine:
            command._parser().parse_args(['up', name, number])
        else:
            with pytest.raises(SystemExit):
                command._parser().parse_args(['up', name, number])
            assert (f"between 1 and 64, got '{number}'"
                    in capsys.readouterr().err)


def test_only_root_makes_namespaces(cloud, monkeypatch):
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    assert cloud('down') == 1
    assert cloud.out == ('tools/cloud makes network namespaces: run it as '
                         'root.\n')


def test_an_action_is_asked_for(capsys):
    with pytest.raises(SystemExit) as caught:
        command.main([])
    assert caught.value.code == 2
    assert 'ACTION' in capsys.readouterr().err
