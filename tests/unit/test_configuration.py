# SPDX-License-Identifier: Apache-2.0

"""A command's options and log, and problems of its configuration."""

import logging
import socket
import sys
import time

from oslo_config import cfg
from oslo_log import log
import pytest

from tests import openssl
from virtco import configuration
from virtco import exception


@pytest.fixture
def logged(tmp_path):
    """Text of a log that is set up as the commands do it."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    path = tmp_path / 'log'
    configuration.read(conf, ['--log-file', str(path)], ())
    configuration.set_up_log(conf, 'virtco')
    yield path.read_text
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_tells_an_error_once(logged):
    try:
        raise exception.NovaUnavailable(why='refused')
    except exception.NovaUnavailable as error:
        logging.getLogger('virtco.x').warning('Nothing compared: %s', error)
    assert logged().count('refused') == 1
    assert logged().endswith('Nothing compared: Nova did not answer: '
                             'refused.\n')


def test_an_error_that_the_line_leaves_out_is_appended(logged):
    try:
        raise OSError('disk on fire')
    except OSError:
        logging.getLogger('virtco.x').error('It stops.')
    assert 'It stops.: OSError: disk on fire' in logged()


def test_nobody_forges_a_line_of_the_log(logged):
    forged = 'no\x1b[2J\n2026-01-01 INFO virtco all is well\u2028'
    told = r'no\x1b[2J\n2026-01-01 INFO virtco all is well\u2028'
    try:
        raise exception.Forbidden(what=f'to join as {forged} – naïve')
    except exception.Forbidden as error:
        logging.getLogger('virtco.x').warning('Closing: %s', error)
        logging.getLogger('virtco.x').warning('It goes on')
    first, second = logged().splitlines()
    assert first.endswith(
        f'Closing: This is not allowed: to join as {told} – naïve.')
    assert second.endswith(r'It goes on: virtco.exception.Forbidden: This is '
                           r'not allowed: to join as no\x1b[2J')


OPTIONS = [('group', [cfg.IntOpt('number', min=1), cfg.StrOpt('word')])]


def read(tmp_path, content):
    conf = cfg.ConfigOpts()
    for group, options in OPTIONS:
        conf.register_opts(options, group=group)
    path = tmp_path / 'file.conf'
    path.write_bytes(content)
    configuration.read(conf, ['--config-file', str(path)], OPTIONS)
    return conf


def test_every_value_is_looked_at(tmp_path):
    conf = read(tmp_path, b'[group]\nnumber = 7\n')
    assert conf.group.number == 7
    with pytest.raises(exception.ConfigInvalid) as caught:
        read(tmp_path, b'[group]\nnumber = 0\n')
    told = str(caught.value)
    assert told.startswith('[group] number: Should be greater than or ')
    assert told.endswith(f', in {tmp_path}/file.conf')
    assert '\n' not in told


@pytest.mark.parametrize(('content', 'told'), [
    (b'[group]\nword = \xff\n', 'a configuration file is not in UTF-8: '),
    (b'[group\n', 'file.conf')])
def test_a_file_that_cannot_be_read_is_told(tmp_path, content, told):
    with pytest.raises(exception.ConfigInvalid, match=told) as caught:
        read(tmp_path, content)
    assert '\n' not in str(caught.value)


def test_a_log_that_cannot_be_is_told(tmp_path):
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf(['--log-config-append', str(tmp_path / 'nowhere')],
         project='virtco')
    with pytest.raises(exception.ConfigInvalid, match='^the log: '):
        configuration.set_up_log(conf, 'virtco')


def test_an_error_with_a_traceback_is_told_whole(logged):
    try:
        raise OSError('disk on fire')
    except OSError as error:
        logging.getLogger('virtco.x').exception('It stops: %s', error)
    assert 'It stops: disk on fire' in logged()
    assert 'Traceback' in logged()


def test_why_a_program_cannot_start_is_said_once(logged, capsys):
    configuration.cannot_start('virtco-x', 'two\n  lines ')
    line = 'virtco-x cannot start: two lines\n'
    assert capsys.readouterr().err == line
    # The log is on no console, so it stands there as well.
    assert logged().endswith(line)


@pytest.mark.parametrize('stream', ['stdout', 'stderr'])
def test_a_log_on_the_console_says_it_no_second_time(monkeypatch, capsys,
                                                    stream):
    handler = logging.StreamHandler(getattr(sys, stream))
    monkeypatch.setattr(logging.root, 'handlers', [handler])
    configuration.cannot_start('virtco-x', 'why')
    both = capsys.readouterr()
    assert (both.out + both.err).count('cannot start') == 1
    monkeypatch.setattr(logging.root, 'handlers', [])
    configuration.cannot_start('virtco-x', 'why')
    assert capsys.readouterr().err.count('cannot start') == 1


@pytest.mark.parametrize('host, family', [
    ('127.0.0.1', socket.AF_INET), ('::1', socket.AF_INET6)])
def test_an_address_that_is_taken(host, family):
    with socket.create_server((host, 0), family=family) as sock:
        port = sock.getsockname()[1]
        found, = configuration.taken([(host, port)])
        assert found.code == 'VC-010'
        assert found.finding.startswith(f'{host} port {port}: ')
    assert not list(configuration.taken([(host, port)]))
    # Two listeners cannot have it, either.
    found, = configuration.taken([(host, port)] * 2)
    assert found.code == 'VC-010' and str(port) in found.finding


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
    """Of two days."""
    authority = openssl.Authority(tmp_path_factory.mktemp('pairs'))
    authority.sign('good')
    authority.sign('other')
    return authority.home


@pytest.mark.parametrize('changes, days, codes', [
    ({}, 0, []), ({}, 1.5, []), ({}, 1.7, ['VC-043']), ({}, 2.1, ['VC-042']),
    ({'key': 'other.key'}, 0, ['VC-041']),
    ({'authorities': ['good.key']}, 0, ['VC-041']),
    ({'authorities': ['ca.pem', None, 'ca.pem']}, 0, []),
    ({'authorities': ['none'], 'key': 'none'}, 0, ['VC-040'] * 2),
    ({'cert': None, 'key': None, 'authorities': ['good.key']}, 0,
     ['VC-041']),
    ({'cert': None}, 9, []), ({'cert': ''}, 9, [])])
def test_a_certificate_that_cannot_be_used_or_ends(
        pairs, monkeypatch, changes, days, codes):
    files = {'cert': 'good.pem', 'key': 'good.key', 'authorities': []
             } | changes
    now_s = time.time() + 86400 * days
    monkeypatch.setattr(configuration.time, 'time', lambda: now_s)

    def at(name):
        return name and str(pairs / name)

    found = list(configuration.certificates(
        'x', at(files['cert']), at(files['key']),
        map(at, files['authorities'])))
    assert [one.code for one in found] == codes
    if codes == ['VC-042']:
        assert 'it ended 0.1 days ago' in found[0].finding
    elif codes and codes != ['VC-043']:
        assert found[0].finding.startswith(f'[x] {pairs}')
