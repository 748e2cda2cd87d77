# SPDX-License-Identifier: Apache-2.0

"""Ports that an operator wrote into a file."""

import json
import os

import pytest

from edge_module.ports import static
from virtco import exception


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'ports.json'


def test_a_file_may_be_missing(path):
    ports = static.StaticPorts(str(path))
    assert ports.read() == () and ports.token() is None


def test_every_change_of_the_file_shows(path):
    ports = static.StaticPorts(str(path))
    path.write_text('{"ports": []}')
    os.utime(path, ns=(5, 5))
    token = ports.token()
    assert ports.token() == token is not None
    os.utime(path, ns=(5, 6))
    assert ports.token() != token
    path.write_text('{"ports":  []}')
    os.utime(path, ns=(5, 5))
    assert ports.token() != token
    # A file that was put in its place has another number.
    other = path.with_name('other')
    other.write_text('{"ports": []}')
    os.utime(other, ns=(5, 5))
    other.replace(path)
    assert ports.token() != token


def test_ports_are_read_as_they_stand(path):
    path.write_text(json.dumps({'ports': [
        {'vm': 'a', 'dev': 't1', 'mac': 'fa:16:3e:00:00:01',
         'ips': ['10.0.0.1', 'FD00::1']},
        {'vm': 'b', 'dev': 't2', 'mac': None, 'ips': None}]}))
    assert [(port.vm, port.dev, port.mac, port.ips, port.notes)
            for port in static.StaticPorts(str(path)).read()] == [
        ('a', 't1', 'fa:16:3e:00:00:01', ('10.0.0.1', 'fd00::1'), ()),
        ('b', 't2', '', (), ())]


@pytest.mark.parametrize('text', ['{', '[]', '{"ports": {}}'])
def test_a_file_that_is_wrong_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(exception.Invalid, match='ports_file'):
        static.StaticPorts(str(path)).read()


@pytest.mark.parametrize('row, field', [
    (5, 'port'), ({'vm': '', 'dev': 't'}, 'vm'),
    ({'vm': 'a', 'dev': 7}, 'dev'), ({'vm': 'a'}, 'dev'),
    ({'vm': 'a', 'dev': 't', 'ips': ['x']}, 'ips'),
    ({'vm': 'a', 'dev': 't', 'ips': 7}, 'ips')])
def test_a_port_that_is_wrong_is_left_out_and_named(path, row, field):
    good = {'vm': 'b', 'dev': 't2'}
    path.write_text(json.dumps({'ports': [row, good]}))
    ports = static.StaticPorts(str(path))
    assert [port.vm for port in ports.read()] == ['b']
    assert ports.complaint.startswith(f'ports[0]: {field}: ')
    path.write_text(json.dumps({'ports': [good]}))
    assert ports.read() and ports.complaint is None
    path.write_text(json.dumps({'ports': [row]}))
    assert ports.read() == () and ports.complaint
    path.unlink()
    assert ports.read() == () and ports.complaint is None


def test_few_wrong_ports_are_named(path):
    path.write_text(json.dumps({'ports': [1] * 6}))
    ports = static.StaticPorts(str(path))
    assert ports.read() == ()
    assert 'ports[4]' in ports.complaint and 'ports[5]' not in ports.complaint
