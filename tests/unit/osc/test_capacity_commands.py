# SPDX-License-Identifier: Apache-2.0

"""``virtco topology capacity``."""

import argparse
import json

import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.osc import capacity_commands as capacity
from virtco.osc import nova_facts
from virtco.topology import tree

FOUND = {'plane': tree.FRONT_END, 'level': 'rack',
         'hosts_without_leaf': ['h9'], 'domains': [
             {'name': 'r2', 'n_hosts': 2, 'slots': 5, 'most_per_host': 3,
              'limiting': 'vcpus', 'groups': {'2': 2, '4': 0}},
             {'name': 'r1', 'n_hosts': 2, 'slots': 5, 'most_per_host': 3,
              'limiting': 'vcpus', 'groups': {'2': 2, '4': 1}},
             {'name': 'r3', 'n_hosts': 4, 'slots': 9, 'most_per_host': 3,
              'limiting': 'disk_gb', 'groups': {'2': 0, '4': 0}}]}
FREE = {'h1': {'vcpus': 4, 'memory_mb': 5, 'disk_gb': 6}}


@pytest.fixture
def free(tmp_path):
    path = tmp_path / 'free.json'
    path.write_text(json.dumps(FREE))
    return str(path)


def _capacity(*argv, found=FOUND):
    one = controller.Controller(**{'POST /v1/capacity': found})
    rows, told = controller.rows(capacity.Capacity, one, *argv)
    return rows, told.splitlines(), one.asked[0][2]


def test_groups_below_each_switch_the_roomiest_first(free):
    rows, told, body = _capacity('--flavor', 'memory_mb=512,vcpus=2',
                                 '--free', free)
    assert body == {
        'flavor': {'vcpus': 2.0, 'memory_mb': 512.0, 'disk_gb': 0.0},
        'level': 'rack', 'hosts': [{'host': 'h1', 'free': FREE['h1']}]}
    assert rows[1] == {'switch': 'r1', 'hosts_n': 2, 'slots': 5,
                       'limiting': 'vcpus', 'of_2': 2, 'of_4': 1,
                       'most_per_host': 3}
    assert [row['switch'] for row in rows] == ['r3', 'r1', 'r2']
    assert told == [
        '4 groups of 2 VMs, in 2 of 3 switches of level rack',
        '1 groups of 4 VMs, in 1 of 3 switches of level rack',
        f'1 hosts are in no leaf of plane {tree.FRONT_END}: h9']


def test_sizes_levels_and_planes_are_asked(free):
    rows, told, body = _capacity(
        '--flavor', 'vcpus=1', '--free', free, '--level', 'pod', '--vms',
        '1,1000000', '--plane', 'ib',
        found=FOUND | {'domains': [], 'hosts_without_leaf': []})
    assert (body['level'], body['vms'], body['plane']) == (
        'pod', [1, 1000000], 'ib')
    assert rows == [] and told == []


@pytest.mark.parametrize('vms', ['0', '1000001', '', '2,x', '2,0'])
def test_sizes_that_no_group_has(vms, free):
    with pytest.raises(SystemExit):
        _capacity('--flavor', 'vcpus=1', '--free', free, '--vms', vms)


@pytest.mark.parametrize('flavor', [
    'vcpus=x', 'cpus=1', 'vcpus=-1', 'vcpus=1e16', 'vcpus=nan', 'vcpus=1,',
    '=1'])
def test_what_no_vm_takes(flavor, free):
    with pytest.raises(exception.InputInvalid, match='^--flavor: '):
        _capacity('--flavor', flavor, '--free', free)


def test_the_least_and_the_most_that_a_vm_takes(free):
    body = _capacity('--flavor', 'vcpus=0,disk_gb=1e15', '--free', free)[2]
    assert body['flavor'] == {'vcpus': 0.0, 'memory_mb': 0.0,
                              'disk_gb': 1e15}


@pytest.mark.parametrize('text', [
    '[1]', '{"h1": {"vcpus": 1}}', '{"h1": 1}', '{', '{"h1": null}',
    '{"h1": {"vcpus": NaN, "memory_mb": 1, "disk_gb": 1}}'])
def test_what_is_free_must_be_told_of_hosts(text, tmp_path):
    path = tmp_path / 'free.json'
    path.write_text(text)
    with pytest.raises(exception.InputInvalid, match=str(path)):
        _capacity('--flavor', 'vcpus=1', '--free', str(path))


def test_what_is_wrong_with_a_file_is_told_in_short(tmp_path):
    path = tmp_path / 'free.json'
    path.write_text(json.dumps({'h1': FREE['h1'] | {'disk_gb': 'x' * 199}}))
    with pytest.raises(exception.InputInvalid) as caught:
        _capacity('--flavor', 'vcpus=1', '--free', str(path))
    told = caught.value.kwargs
    assert len(told['value']) == 160
    assert (told['field'], told['limit']) == ('h1.disk_gb', 'a number')


def test_a_name_of_a_flavor_or_no_file_asks_the_cloud(free):
    for argv in ('--flavor', 'm1', '--free', free), ('--flavor', 'vcpus=1'):
        with pytest.raises(exception.Invalid, match='keystone'):
            _capacity(*argv)
    with pytest.raises(SystemExit):
        _capacity('--free', free)


@pytest.mark.parametrize('text, field', [
    ('=5', 'resource'), ('gpus=1', 'gpus'), ('vcpus=', 'vcpus'),
    ('vcpus=-1', 'vcpus'), ('vcpus=1,disk_gb=x', 'disk_gb'),
    ('memory_mb=1000000000000001', 'memory_mb'), ('vcpus=nan', 'vcpus')])
def test_what_a_vm_takes_is_checked(text, field):
    with pytest.raises(exception.InputInvalid) as caught:
        nova_facts.flavor(None, text)
    assert caught.value.kwargs['field'] == field
    assert caught.value.kwargs['where'] == '--flavor'


def test_what_a_vm_takes():
    assert nova_facts.flavor(None, 'disk_gb=1e15,vcpus=0.5') == {
        'vcpus': 0.5, 'memory_mb': 0.0, 'disk_gb': 1e15}
    assert capacity._sizes('1,1000000') == [1, 1_000_000]
    for text in ('0', '1000001', '', '4,', 'x'):
        with pytest.raises(argparse.ArgumentTypeError):
            capacity._sizes(text)


def test_a_single_switch(free):
    rows, told, _ = _capacity('--flavor', 'vcpus=1', '--free', free, found={
        **FOUND, 'domains': FOUND['domains'][1:2], 'hosts_without_leaf': []})
    assert [(row['switch'], row['of_2'], row['of_4']) for row in rows] == [
        ('r1', 2, 1)]
    assert told[0] == '2 groups of 2 VMs, in 1 of 1 switches of level rack'
