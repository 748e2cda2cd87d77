# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge --check`` names each fault by its code, and nothing else."""

import contextlib
import logging
import os
import resource
import socket
import time

from oslo_config import cfg
import pytest

from edge_module import cmd
from edge_module import kept_state
from edge_module import netns_lock
from edge_module import show
from edge_module.ports import ovsdb
from tests import openssl
from virtco import exception

FINE = 'The kernel holds what the policy says.'
TLS = {'certfile': '{pairs}/good.pem', 'keyfile': '{pairs}/good.key',
       'cafile': '{pairs}/ca.pem'}
FAULTS = {
    'misspelt option': (
        'VC-003', {'edge': {'uplink_dve': 'lo'}},
        '[edge] uplink_dve, uplink_dev is meant perhaps'),
    'option of another section': (
        'VC-003', {'edge': {'enabled': 'false'}}, '[edge] enabled'),
    'misspelt option of a library': (
        'VC-003', {'DEFAULT': {'log_fle': 'x'}}, '[DEFAULT] log_fle, log_file'
        ' is meant perhaps'),
    'misspelt option of a login': (
        'VC-003', {'controller_auth': {
            'auth_type': 'password', 'pasword': 'x'}},
        '[controller_auth] pasword, password is meant perhaps'),
    'misspelt section': ('VC-004', {'prode': {'port': 0}},
                         '[prode], probe is meant perhaps'),
    'port of metrics taken': (
        'VC-010', {'edge': {'metrics_port': '{taken}'}},
        '127.0.0.1 port {taken}: address already in use'),
    'port of packet trains taken': (
        'VC-010', {'probe': {'port': '{taken}'}},
        '127.0.0.1 port {taken}: address already in use'),
    'address of another machine': (
        'VC-010', {'probe': {'address': '192.0.2.1'}}, '192.0.2.1 port 0: '),
    'CA that is missing': (
        'VC-040', {'controller_auth': TLS | {'cafile': '/none.pem'}},
        '[controller_auth] /none.pem: no such file'),
    'key of another certificate': (
        'VC-041', {'controller_auth': TLS | {'keyfile': '{pairs}/other.key'}},
        '[controller_auth] {pairs}/good.pem: '),
    'uplink that is missing': (
        'VC-091', {'edge': {'uplink_dev': 'none'}}, 'none: no such device'),
    'further uplink that is missing': (
        'VC-091', {'edge': {'further_uplinks': 'none:1e9'}},
        'none: no such device'),
    'state below a file': (
        'VC-093', {'edge': {'state_dir': '{home}/edge.conf/state'}},
        '[edge] state_dir {home}/edge.conf/state: not a directory'),
}


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
    """Two pairs of key and certificate, of two days."""
    authority = openssl.Authority(tmp_path_factory.mktemp('pairs'))
    authority.sign('good')
    authority.sign('other')
    return authority.home


@pytest.fixture
def fill(tmp_path, pairs):
    """Puts paths and a port into a text."""
    with socket.create_server(('127.0.0.1', 0)) as taken:
        yield lambda text: str(text).replace('{home}', str(tmp_path)).replace(
            '{pairs}', str(pairs)).replace(
                '{taken}', str(taken.getsockname()[1]))


@pytest.fixture
def configured(tmp_path, fill, monkeypatch):
    """Arguments of a configuration that works but for some options."""
    monkeypatch.setitem(cmd.sys.modules, 'eventlet', None)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def call(options):
        found = {'edge': {'uplink_dev': 'lo', 'link_egress_bps': 1e9,
                          'state_dir': '{home}/state'},
                 'probe': {'address': '127.0.0.1', 'port': 0}}
        for section, values in options.items():
            found[section] = found.get(section, {}) | values
        path = tmp_path / 'edge.conf'
        path.write_text(fill(''.join(
            f'[{section}]\n' + ''.join(f'{name} = {value}\n'
                                       for name, value in values.items())
            for section, values in found.items())))
        monkeypatch.setattr(cmd.cfg, 'CONF', cfg.ConfigOpts())
        return ['--config-file', str(path)]

    yield call
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def check(configured, monkeypatch, capsys):
    """Exit code, and problems that ``--check`` prints."""
    monkeypatch.setattr(cmd, '_saved_enforcer', lambda _conf: None)
    monkeypatch.setattr(show, 'drift', lambda _enforcer: [])
    monkeypatch.setattr(netns_lock, 'is_held', lambda: False)

    def call(options):
        code = cmd.main([*configured(options), '--check'])
        out, err = capsys.readouterr()
        *found, last = out.splitlines()
        assert (last, err) == (FINE, '')
        return code, found
    return call


@pytest.mark.parametrize('name', FAULTS)
def test_a_fault_is_named_and_nothing_else(name, check, fill):
    code, options, words = FAULTS[name]
    found_code, (line,) = check(options)
    assert line.startswith(f'{code}: ') and fill(words) in line
    # What is misspelt has no effect, and is no error.
    assert found_code == (code not in ('VC-003', 'VC-004'))


def test_a_configuration_that_works_has_no_problem(check, tmp_path):
    assert check({'controller_auth': TLS | {'auth_type': 'password',
                                            'user-name': 'u'},
                  'DEFAULT': {'debug': 'true'},
                  'probe': {'enabled': 'false'}}) == (0, [])
    # The directory would be root's, and none of the agent's user.
    assert not (tmp_path / 'state').exists()


@pytest.mark.parametrize('days, code, line', [
    (1.8, 0, 'VC-043: {pairs}/good.pem: it ends in 0.2 days'),
    (3, 1, 'VC-042: {pairs}/good.pem: it ended 1.0 days ago')])
def test_the_end_of_a_certificate(days, code, line, check, fill, monkeypatch):
    now_s = time.time() + 86400 * days
    monkeypatch.setattr('virtco.configuration.time.time', lambda: now_s)
    assert check({'controller_auth': TLS}) == (code, [fill(line)])


def test_a_disk_that_takes_no_policy(check, tmp_path):
    (tmp_path / 'state').mkdir()
    with _limited_files():
        code, (line,) = check({})
    assert code == 1
    assert line.startswith('VC-093: ') and line.endswith('file too large')


@contextlib.contextmanager
def _limited_files():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_open_vswitch_that_does_not_answer(configured, monkeypatch, capsys):
    monkeypatch.setattr(ovsdb, '_TIMEOUT_S', 0.05)
    assert cmd.main([*configured({'edge': {
        'ports_backend': 'ovs', 'ovsdb_connection': 'unix:/none.sock'}}),
        '--check']) == 1
    # The library logs its own line.
    line, = (line for line in capsys.readouterr().out.splitlines()
             if 'idlutils' not in line)
    assert line.startswith('VC-092: Open vSwitch at unix:/none.sock did not ')


def test_ports_are_those_of_the_edge_module_that_runs(check, monkeypatch):
    options = {'edge': {'metrics_port': '{taken}',
                        'further_uplinks': f'x{os.getpid()}:1e9'}}
    code, found = check(options)
    assert (code, [line[:6] for line in found]) == (1, ['VC-091', 'VC-010'])
    monkeypatch.setattr(netns_lock, 'is_held', lambda: True)
    code, found = check(options)
    assert (code, [line[:6] for line in found]) == (1, ['VC-091'])


def test_a_start_logs_each_problem(configured, monkeypatch, caplog):
    class Kernel:
        def __init__(self, *_args):
            pass

        def wait_ready(self):
            raise exception.KernelRefused('the end')

    monkeypatch.setattr(netns_lock, 'hold', contextlib.nullcontext)
    monkeypatch.setattr(cmd.kernel_events, 'KernelWatch', Kernel)
    monkeypatch.setattr(cmd.choice, 'open_kernel', Kernel)
    monkeypatch.setattr(cmd.factory, 'Parts', Kernel)
    monkeypatch.setattr(cmd.configuration, 'set_up_log', lambda *_: None)
    assert cmd.main(configured({
        'edge': {'uplink_dev': 'none', 'metrics_port': '{taken}'},
        'prode': {'port': 1}})) == 2
    assert [(one.levelname, one.getMessage()[:6]) for one in caplog.records
            ] == [('WARNING', 'VC-004'), ('ERROR', 'VC-091'),
                  ('ERROR', 'VC-010')]


def test_a_state_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(exception.Invalid) as told:
        kept_state.StateDir(str(tmp_path / 'file'))
    assert str(told.value).startswith('[edge] state_dir: expected a directory')
