# SPDX-License-Identifier: Apache-2.0

"""Neutron's API: which limits of ports count for a VM."""

import urllib.parse

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import pytest

from tests.unit.follow import test_nova
from virtco import exception
from virtco.follow import neutron

api = test_nova.api


def rule(max_kbps, kind='bandwidth_limit', **values):
    return {'type': kind, 'max_kbps': max_kbps, **values}


POLICIES = [
    {'id': 'both', 'rules': [rule(5000), rule(3000, direction='ingress'),
                             rule(4000, direction='egress')]},
    {'id': 'least', 'rules': [
        {'type': 'minimum_bandwidth', 'min_kbps': 9, 'direction': 'egress'},
        {'type': 'dscp_marking', 'dscp_mark': 26}]}]


def port(number, vm, policy=None, of_network=None):
    return {'id': f'port{number}', 'device_id': vm, 'qos_policy_id': policy,
            'qos_network_policy_id': of_network}


@pytest.fixture
def ask(api):
    """Returns the limits of a project; Neutron has two ports a page."""
    def limits_bps(everybodys, policies=POLICIES, only=()):
        def page(handler, query):
            if 'project_id' not in query:
                return 200, {'policies': policies}
            assert query['project_id'] == 'p'
            wanted = urllib.parse.parse_qs(handler.path).get('device_id')
            ports = [one for one in everybodys
                     if wanted is None or one['device_id'] in wanted]
            start = [one['id'] for one in ports].index(
                query['marker']) + 1 if 'marker' in query else 0
            links = [{'rel': 'previous'}] * (start > 0) + [
                {'rel': 'next'}] * (start + 2 < len(ports))
            return 200, {'ports': ports[start:start + 2],
                         'ports_links': links}

        api.page = page
        client = neutron.Neutron(
            test_nova.made_conf(), ks_session.Session(noauth.NoAuth(
                endpoint=f'http://127.0.0.1:{api.server_port}')))
        return client.limits_bps(client.policies_bps(), 'p', only)

    return limits_bps


def test_the_least_rule_of_each_direction_counts(api, ask):
    assert ask([port(0, 'a', 'both'), port(1, 'b', 'least'), port(2, 'c'),
                port(3, 'd', 'least', 'both'), port(4, 'e', None, 'both')
                ]) == {'a': (4e6, 3e6), 'e': (4e6, 3e6)}
    assert api.asked == ['/v2.0/qos/policies', *['/v2.0/ports'] * 3]


def test_ports_of_some_vms_are_asked_for(api, ask, monkeypatch):
    monkeypatch.setattr(neutron, '_VMS_AT_ONCE', 2)
    ports = [port(0, 'a', 'both'), port(1, 'b', 'both'), port(2, 'c', 'both'),
             port(3, 'd', 'both')]
    assert set(ask(ports, only=['a', 'd', 'c'])) == {'a', 'c', 'd'}
    assert api.asked == ['/v2.0/qos/policies', *['/v2.0/ports'] * 2]


def test_limits_of_a_vms_ports_add_up(ask):
    assert ask([port(0, 'a', 'both'), port(1, 'b', 'both'),
                port(2, 'a', 'both'), port(3, 'b')]) == {'a': (8e6, 6e6)}


def test_one_direction_may_be_limited_alone(ask):
    assert ask([port(0, 'a', 'in')], [{'id': 'in', 'rules': [
        rule(7, direction='ingress')]}]) == {'a': (None, 7e3)}


def test_without_a_limit_no_port_is_asked_for(api, ask):
    assert ask([port(0, 'a', 'least')], POLICIES[1:]) == {}
    assert api.asked == ['/v2.0/qos/policies']


@pytest.mark.parametrize('answer', [
    (404, b'<html>'), (200, {}), (200, {'policies': [{'id': 'x'}]})])
def test_no_answer_tells_nothing(api, ask, answer):
    api.answers['/v2.0/qos/policies'] = answer
    with pytest.raises(exception.NovaUnavailable):
        ask([])
