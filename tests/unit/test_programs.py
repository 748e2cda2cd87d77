# SPDX-License-Identifier: Apache-2.0

"""Console programs below their entry points, without a port or a process."""

import argparse
import importlib.metadata
import io
import json
import logging
import signal
import sys

from oslo_config import cfg
import pytest

from tests.unit import stored
from virtco import exception
from virtco.cmd import controller
from virtco.cmd import entry
from virtco.cmd import manage
from virtco.cmd import status
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.model import states
from virtco_lab.cmd import arguments

# Arguments.

@pytest.mark.parametrize('kind, good, bad', [
    (arguments.between(3, 5), {'3': 3, '5': 5},
     ['2', '6', '-3', '4.0', 'x', '', '٤']),
    (arguments.positive, {'0.5': 0.5, '1e-9': 1e-9}, ['0', '-1', 'nan']),
    (arguments.seconds, {'3600': 3600.0, '1e9': 1e9},
     ['0', 'inf', '1.1e9', 'nan', 'x']),
    (arguments.count, {'1': 1, '1000': 1000}, ['0', '1001']),
    (arguments.seed, {'0': 0, str(2 ** 32 - 1): 2 ** 32 - 1},
     [str(2 ** 32), '-1', 'x', '']),
    (arguments.seeds, {'3': (0, 1, 2), '5-7': (5, 6, 7), '4-4': (4,),
                       '1-1000': tuple(range(1, 1001))},
     ['0', '7-5', '0-1000', '-4', '1001']),
    (arguments.names, {'a, b,,a': ('a', 'b')}, ['', ' , ']),
    (arguments.rate_bps, {'10Mbit': 1e7}, ['fast', '-1Mbit'])])
def test_arguments(kind, good, bad):
    for text, value in good.items():
        assert kind(text) == value
    for text in bad:
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            kind(text)


def test_paths_that_can_be_written(tmp_path):
    there = tmp_path / 'a' / 'b'
    assert arguments.directory(str(there)) == there and there.is_dir()
    assert arguments.directory(str(there)) == there
    file = there / 'f'
    assert arguments.file(str(file)) == file and not file.exists()
    file.write_text('kept')
    assert arguments.file(str(file)) == file and file.read_text() == 'kept'
    for kind, path in ((arguments.directory, file / 'x'),
                       (arguments.file, tmp_path / 'no' / 'f'),
                       (arguments.file, there)):
        with pytest.raises(argparse.ArgumentTypeError,
                           match=f'cannot write to {path}: '):
            kind(str(path))


# Entry points.

def test_what_is_not_installed_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / 'fine.py').write_text('main = lambda: 7')
    (tmp_path / 'poor.py').write_text('import surely_not_there.inside')
    assert entry.run('p', 'fine', 'extra') == 7
    assert entry.run('p', 'poor', 'extra') == 1
    assert capsys.readouterr().err == (
        'p cannot start: the Python package surely_not_there is not '
        'installed; the extra extra of virtco brings it: pip install '
        "'SOURCE[extra]'\n")
    # A package of its own that is not there is a defect, not a hint.
    for error in (ModuleNotFoundError(name='virtco.gone'),
                  ImportError(name='surely_not_there')):
        with pytest.raises(ImportError):
            entry.missing(error, 'extra')


def test_an_output_without_unicode_gets_escapes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / 'talks.py').write_text("main = lambda: print('a\\u2026') or 0")
    written = io.BytesIO()
    monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(written, 'ascii'))
    assert entry.run('p', 'talks', 'extra') == 0
    sys.stdout.flush()
    assert written.getvalue() == b'a\\u2026\n'


# The controller.

def conf_of(**groups):
    return stored.conf(**groups)


def test_each_program_has_its_ports():
    conf = conf_of(api={'host': '10.0.0.1', 'port': 80},
                   monitoring={'host': '10.0.0.3'})
    def addresses(program):
        return list(program.listens_on(conf).values())

    assert {program.name: addresses(program) for program in (
        controller.CONTROLLER, controller.API, controller.SCHEDULER,
        controller.DISTRIBUTOR)} == {
        'virtco-controller': [('10.0.0.1', 80)],
        'virtco-api': [('10.0.0.1', 80)],
        'virtco-scheduler': [('10.0.0.3', 8794)],
        'virtco-distributor': [('10.0.0.3', 8795)]}
    conf.set_override('port', 0, 'monitoring')
    assert addresses(controller.SCHEDULER) == [('10.0.0.3', 0)]
    assert addresses(controller.DISTRIBUTOR) == [('10.0.0.3', 0)]


class Loader(controller.Loader):
    """Fails with an error, and ends no process."""

    def __init__(self, error):
        super().__init__(conf_of())
        self.error, self.ends = error, 0

    def _load(self):
        raise self.error

    def _end(self):
        self.ends += 1


@pytest.mark.parametrize('error, told', [
    (exception.Invalid(field='f', value='v', limit='this'), 'this'),
    (OSError('no room'), 'no room'), (ValueError('odd'), 'odd'),
    (ModuleNotFoundError(name='sushy.x'), 'SOURCE[controller]'),
    (RuntimeError('defect'), '')])
def test_a_start_that_fails_ends_the_program(error, told, capsys):
    loader = Loader(error)
    loader.run()
    assert (loader.exit_code, loader.ends, loader.begins_anew) == (
        1, 1, False)
    assert told in capsys.readouterr().err


def test_a_deposed_leader_begins_anew():
    loader = Loader(None)
    loader._begin_anew()
    # A second signal would end it.
    loader._begin_anew()
    assert (loader.begins_anew, loader.ends, loader.exit_code) == (
        True, 1, 0)


@pytest.mark.parametrize('begins_anew, n_signals', [
    (False, 1), (False, 2), (True, 1), (True, 2)])
def test_a_program_stops_all_that_it_started(config, monkeypatch,
                                             begins_anew, n_signals):
    noted, handlers = [], {}

    class Loader(controller.Loader):
        exit_code = 5

        def start(self):
            noted.append('start')

        def stop(self):
            noted.append('stop')
            self.begins_anew, self.exit_code = begins_anew, 5
            # A further signal does not break off the stop.
            for _ in range(1, n_signals):
                handlers[signal.SIGTERM](signal.SIGTERM, None)
            noted.append('stopped')

    class Server:
        def run(self):
            noted.append('run')
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            noted.append('runs on')

        def close(self):
            noted.append('close')

    monkeypatch.setattr(controller, 'Loader', Loader)
    monkeypatch.setattr(controller, '_server', lambda *_: Server())
    monkeypatch.setattr(controller.signal, 'signal', handlers.__setitem__)
    monkeypatch.setattr(controller.os, 'execv',
                        lambda *args: noted.append(args))
    monkeypatch.setattr(sys, 'orig_argv', ['python3', 'program', '--x'])
    assert controller.main(['--config-file', str(config)]) == 5
    assert noted == ['start', 'run', 'close', 'stop', 'stopped'] + [
        (sys.executable, [sys.executable, 'program', '--x'])] * (
            begins_anew and n_signals == 1)
    # The next program would inherit what is ignored.
    assert signal.SIG_IGN not in handlers.values()


# The database by hand.

@pytest.fixture
def config(tmp_path):
    """A configuration file; what a program logs to ends with the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    path = tmp_path / 'virtco.conf'
    path.write_text(f'[controller]\nstate_dir = {tmp_path}\n')
    yield path
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_database_is_managed(config, capsys):
    def run(*argv):
        code = manage.main(['--config-file', str(config), *argv])
        found = capsys.readouterr()
        return code, found.out + found.err

    head = migration.head()
    assert run('db', 'version') == (0, f'database empty, code {head}\n')
    assert run('db', 'sync') == (0, f'{head}\n')
    assert run('db', 'version') == (0, f'database {head}, code {head}\n')
    assert run('epoch', 'show') == (0, 'epoch 0, nobody leads\n')
    code, told = run('epoch', 'raise', '7')
    assert code == 0 and told.startswith('epoch 7; ')
    assert run('epoch', 'show')[1].startswith('epoch 7, ')
    code, told = run('epoch', 'raise', '3')
    assert code == 1 and told.startswith('virtco-manage: ')
    code, told = run('rebuild')
    assert code == 1 and '[nova] auth_type' in told
    database = db_session.Database(
        f'sqlite:///{config.parent}/virtco.sqlite')
    day_s = 86400
    now_s = manage.time.time()
    stored.add(database, *(stored.group(
        name, retired_at=now_s - days * day_s, live_key=name)
        for name, days in (('young', 0.9), ('old', 1.1), ('older', 3.1))),
        *(stored.coflow(f'p-{name}', state=states.CoflowState.RETIRED,
                        ended_at=now_s - days * day_s)
          for name, days in (('young', 0.9), ('old', 1.1), ('older', 3.1))))
    for argv, left in ((('--days', '3'), {'young', 'old'}),
                       ((), {'young'})):
        code, told = run('db', 'purge', *argv)
        assert code == 0 and ': 1 deleted\n' in told
        with database.reader() as session:
            assert {one.name for one in session.query(models.Group)} == left
    database.dispose()


# Ready for an upgrade?

def nova(monkeypatch, version):
    """Let this release of Nova be installed; None: there is none."""
    def found(_name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(status.importlib.metadata, 'version', found)


def test_an_upgrade_is_checked(config, capsys, monkeypatch):
    nova(monkeypatch, None)

    def run(**lines):
        config.write_text(f'[controller]\nstate_dir = {config.parent}\n'
                          + ''.join(f'[{group}]\n{text}\n'
                                    for group, text in lines.items()))
        code = status.main(['--config-file', str(config), 'upgrade',
                            'check', '--json'])
        return code, {one['check']: one['result'] for one in json.loads(
            capsys.readouterr().out)['checks']}

    code, found = run()
    assert code == 2 and found == {
        'Database schema': 2, 'Time to plan': 0, 'Authentication': 0,
        'Edge modules': 0, 'Comparison with Nova': 1,
        'Release of Nova': 0}
    database = db_session.Database(
        f'sqlite:///{config.parent}/virtco.sqlite')
    migration.upgrade(database)
    database.dispose()
    code, found = run(
        placement='budget_s = 2\ndeadline_s = 2',
        api='host = 203.0.113.1\nauth_strategy = noauth',
        nova='auth_type = password')
    assert code == 1 and found == {
        'Database schema': 0, 'Time to plan': 1, 'Authentication': 1,
        'Edge modules': 0, 'Comparison with Nova': 0,
        'Release of Nova': 0}
    code, found = run(
        placement='budget_s = 1\ndeadline_s = 2',
        api='host = 203.0.113.1\nauth_strategy = keystone',
        nova='auth_type = password')
    assert code == 1 and found == {
        'Database schema': 0, 'Time to plan': 0, 'Authentication': 0,
        'Edge modules': 1, 'Comparison with Nova': 0,
        'Release of Nova': 0}
    code, found = run(
        api='auth_strategy = keystone', nova='auth_type = password',
        distributor='client_ca_file = /x')
    assert code == 0 and set(found.values()) == {0}


@pytest.mark.parametrize('version, is_flawed', [
    (None, False), ('30.0.0', False),
    *((f'{major}.{minor}.{patch + more}', more < 0)
      for major, minor, patch in status.PATCHED_NOVA.values()
      for more in (-1, 0, 1))])
def test_a_nova_with_a_flaw_is_warned_of(monkeypatch, version, is_flawed):
    nova(monkeypatch, version)
    found = status.Checks(None)._nova()
    assert found.code.value == int(is_flawed)
    assert ('OSSA' in (found.details or '')) == is_flawed


@pytest.mark.parametrize('program, code', [
    (manage.main, 1), (status.main, 255), (controller.main, 1)])
def test_a_configuration_that_is_wrong(program, code, config, capsys,
                                       monkeypatch):
    config.write_text('[placement]\nbudget_s = soon\n')
    rest = {manage.main: ['db', 'version'], status.main: ['upgrade', 'check'],
            controller.main: []}[program]
    assert program(['--config-file', str(config), *rest]) == code
    assert 'budget_s' in capsys.readouterr().err
    # Without arguments those of the process are meant.
    monkeypatch.setattr(sys, 'argv', ['x', '--config-file', str(config),
                                      *rest])
    assert program() == code
    assert 'budget_s' in capsys.readouterr().err


def test_options_are_those_of_all_rooms(config):
    conf = controller.make_conf(['--config-file', str(config)])
    assert conf.controller.state_dir == str(config.parent)
    assert isinstance(conf, cfg.ConfigOpts)
    assert conf.oslo_policy.policy_file == 'policy.yaml'
    assert set(controller.QUIET) <= set(conf.default_log_levels)
