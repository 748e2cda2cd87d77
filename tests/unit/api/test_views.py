# SPDX-License-Identifier: Apache-2.0

"""What the API shows of hosts, waiting coflows and measurements."""

import dataclasses
import types

import falcon
from falcon import testing
import msgspec
from msgspec import structs
import numpy as np
from oslo_config import cfg
from oslo_policy import opts as policy_opts
import pytest

from tests.unit import made
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco.api import call
from virtco.api import context
from virtco.api import policies
from virtco.api import views
from virtco.api.handlers import measure_routes as measure
from virtco.conf import opts
from virtco.decide import waiting
from virtco.model import cluster
from virtco.model import live
from virtco.state import byte_counters
from virtco.state import host_state
from virtco.wire import coflow_bodies as coflow
from virtco.wire import fields
from virtco.wire import host

CAPACITY = types.SimpleNamespace(
    egress_bps=3e9, ingress_bps=2e9, measured_egress_bps=2.9e9,
    measured_ingress_bps=1.9e9, measured_s=70.0, source='measured')
REPORT = made.report(
    applied_generation=4, link={'egress_bps': 5e9, 'ingress_bps': 4e9},
    coflows=[{'coflow_id': 'c16', 'sent_bytes': 9, 'backlog_bytes': 8}],
    ports=[{'vm': 'v2'}, {'vm': 'v1'}, {'vm': 'v2'}], cpu_s=6.0)
SEEN = host_state.View('h1', CAPACITY, 60.0, REPORT, 11.0, {'c16': 12.0})
POLICY = structs.replace(test_tcplan.policy([
    test_tcplan.coflow(0x10, 40e6, (3.0, 1.0)),
    test_tcplan.coflow(0x20, 8e6)]), generation=5)


def shown(seen, policy):
    return msgspec.to_builtins(views.host(seen, policy, host.Drained(
        host='h1', drain=None, drain_reason=None, drain_since=None), 100.0))


def _uplinks(deltas, observed_bps):
    """Uplinks of r1 with h1 below it, and of r2 with h2 and h3."""
    above = cluster.Tree((cluster.Subtree('r1', 4e9, 3e9),
                          cluster.Subtree('r2', 4e9, float('inf'))),
                         {'h1': 'r1', 'h2': 'r2', 'h3': 'r2'})
    policy = structs.replace(POLICY, host='h1', classes=tuple(
        structs.replace(one, destinations=tuple(
            structs.replace(child, host=name)
            for child, name in zip(one.destinations, hosts, strict=True)))
        for one, hosts in zip(POLICY.classes, (('h2', 'h4'), ('h3',)))))
    seen = dataclasses.replace(SEEN, observed_bps=observed_bps, deltas=[
        byte_counters.Delta(*delta) for delta in deltas])
    nominal = dataclasses.replace(above.subtrees[0], uplink_in_bps=5e9)
    return views.uplinks(above, cluster.Tree((nominal, above.subtrees[1])),
                         [(seen, policy)])


@pytest.mark.parametrize('deltas, observed_bps, up_bps, into_bps', [
    ([], {}, 0.0, 0.0),
    # Of c16 no bytes were counted: equal parts.
    ([], {'c16': 6.0}, 6.0, 3.0),
    ([('c16', 'h2', 1.0), ('c16', 'h4', 2.0)], {'c16': 6.0}, 6.0, 2.0),
    # Bytes without a destination go to that which was not counted.
    ([('c16', 'h4', 1.0), ('c16', None, 2.0)], {'c16': 6.0}, 6.0, 4.0),
    ([('c16', 'h2', 2.0), ('c16', 'h4', 0.5), ('c16', None, 0.5)],
     {'c16': 6.0, 'c32': 1.0}, 7.0, 5.5)])
def test_coflows_on_the_uplinks_of_switches(deltas, observed_bps, up_bps,
                                            into_bps):
    first, second = _uplinks(deltas, observed_bps)
    assert (first.name, first.up_bps, first.down_bps, first.nominal_up_bps,
            first.nominal_down_bps) == ('r1', 4e9, 3e9, 4e9, 5e9)
    assert (second.name, second.down_bps) == ('r2', None)
    assert (first.observed_up_bps, first.observed_down_bps) == (up_bps, 0.0)
    assert (second.observed_up_bps, second.observed_down_bps) == (
        0.0, into_bps)


def test_a_host():
    found = shown(SEEN, POLICY)
    assert found | {
        'egress_bps': 3e9, 'ingress_bps': 2e9, 'link_egress_bps': 5e9,
        'link_ingress_bps': 4e9, 'measured_egress_bps': 2.9e9,
        'measured_ingress_bps': 1.9e9, 'measured_age_s': 30.0,
        'generation': 5, 'applied_generation': 4, 'generations_behind': 1,
        'last_report': 60.0,
        'coflows': ['c16', 'c32'], 'vms': ['v1', 'v2'], 'cpu_s': 6.0,
        'background_bps': 11.0, 'rate_source': 'measured'} == found
    silent = shown(dataclasses.replace(
        SEEN, last_report_s=None, capacity=types.SimpleNamespace(
            **vars(CAPACITY) | {'measured_s': None})), None)
    assert (silent['applied_generation'], silent['measured_age_s'],
            silent['generation'], silent['coflows']) == (None, None, None, [])
    at_zero = shown(dataclasses.replace(
        SEEN, capacity=types.SimpleNamespace(
            **vars(CAPACITY) | {'measured_s': 0.0})), None)
    assert at_zero['measured_age_s'] == 100.0
    assert silent['generations_behind'] == 0


def test_classes():
    first, second = msgspec.to_builtins(views.classes(SEEN, POLICY))
    assert (first['minor'], first['observed_bps'], first['backlog_bytes'],
            first['destinations']) == ('7000:10', 12.0, 8, ['h2', 'h3'])
    assert first['rate_bps'] == 40e6
    assert (second['observed_bps'], second['backlog_bytes']) == (None, None)
    assert views.classes(SEEN, None) == []


@pytest.mark.parametrize('found, bottleneck, n_before', [
    (None, None, None),
    (waiting.Waiting(live.Cap('h1', 'egress', ''), 2.5, 3, ()),
     {'host': 'h1', 'direction': 'egress', 'busy_s': 2.5,
      'capped_vm': None}, 3),
    (waiting.Waiting(live.Cap('h1', 'ingress', 'vm'), float('inf'), 0, ()),
     {'host': 'h1', 'direction': 'ingress', 'busy_s': None,
      'capped_vm': 'vm'}, 0)])
def test_what_a_coflow_waits_for(found, bottleneck, n_before):
    nothing = dict.fromkeys(coflow.Coflow.__struct_fields__)
    told = views.waiting(coflow.Coflow(**nothing), found)
    assert msgspec.to_builtins(told) == nothing | {
        'bottleneck': bottleneck, 'n_before': n_before}


@pytest.mark.parametrize('statistic, expected', [
    ('latest', [5.0, 4.0]), ('median', [3.0, 6.0]), ('least', [1.0, 4.0]),
    ('most', [5.0, 8.0]), ('range', [4.0, 4.0])])
def test_statistics_of_pairs(statistic, expected):
    values = np.array([[1.0, 8.0], [3.0, 6.0], [5.0, 4.0]])
    assert measure.statistics(values, statistic).tolist() == expected
    none = np.empty((2, 0))
    assert measure.statistics(none, statistic).shape == (0,)


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    opts.register_opts(found)
    policy_opts.set_defaults(found, 'policy.yaml')
    found([])
    return found


def request(headers=None, query='', **environ):
    return falcon.Request(testing.create_environ(
        '/v1', query_string=query, headers=headers) | environ)


def roles(*names):
    return {'X-Roles': ','.join(names), 'X-User-Id': 'u', 'X-User-Name': 'n',
            'X-Project-Id': 'p', 'X-Identity-Status': 'Confirmed'}


def test_with_keystone_roles_decide(conf):
    conf.set_override('auth_strategy', 'keystone', 'api')
    found = context.Authorizer(conf)
    reader, admin = (call.Call(None, found, request(roles(role)))
                     for role in ('reader', 'admin'))
    rule = policies.HOSTS
    assert not reader.may(rule) and admin.may(rule) is True
    with pytest.raises(exception.Forbidden, match=rule.name):
        reader.require(rule)
    admin.require(rule)
    assert reader.callers_project() == 'p' and reader.who() == 'n'
    nameless = call.Call(None, found, request(
        roles('reader') | {'X-User-Name': ''}))
    assert nameless.who() in ('u', 'unknown')
    with pytest.raises(exception.Forbidden):
        reader.require_host('h1')


def test_who_asks_about_a_project_may_ask_about_it(conf):
    conf.set_override('auth_strategy', 'keystone', 'api')
    found = context.Authorizer(conf)

    def asked(role, query=''):
        one = request(roles(role), query)
        return call.Call(None, found, one).project(
            fields.ProjectQuery(
                project_id=one.get_param('project_id')), policies.LIST_COFLOWS)

    assert asked('reader') == 'p' and asked('admin') is None
    assert asked('reader', 'project_id=p') == 'p'
    assert asked('admin', 'project_id=q') == 'q'
    with pytest.raises(exception.Forbidden, match=policies.LIST_COFLOWS.name):
        asked('reader', 'project_id=q')


@pytest.mark.parametrize('asks_certificates', [False, True])
def test_without_keystone_everybody_is_an_operator(conf, asks_certificates):
    conf.set_override('auth_strategy', 'noauth', 'api')
    if asks_certificates:
        conf.set_override('client_ca_file', '/x', 'distributor')
    anybody = call.Call(None, context.Authorizer(conf), request())
    assert anybody.may(policies.HOSTS)
    assert anybody.callers_project() == ''
    assert anybody.who() == 'somebody at 127.0.0.1'
    if asks_certificates:
        with pytest.raises(exception.Forbidden, match='by its certificate'):
            anybody.require_host('h1')
    else:
        anybody.require_host('h1')


def test_a_policy_file_that_is_named_must_be_there(conf, tmp_path):
    path = tmp_path / 'virtco.conf'
    path.write_text('[oslo_policy]\npolicy_file = /proc/nowhere.yaml\n')
    conf(['--config-file', str(path)])
    with pytest.raises(exception.Invalid, match='nowhere'):
        context.Authorizer(conf)
    there = tmp_path / 'policy.yaml'
    there.write_text('{}')
    path.write_text(f'[oslo_policy]\npolicy_file = {there}\n')
    conf(['--config-file', str(path)])
    context.Authorizer(conf)


def test_a_policy_file_that_cannot_be_read_is_told_at_the_start(conf,
                                                                tmp_path):
    """Not to whoever calls first."""
    path = tmp_path / 'policy.yaml'
    conf.set_override('policy_file', str(path), 'oslo_policy')
    for text in '[', '{':
        path.write_text(text)
        with pytest.raises(ValueError, match='parsing'):
            context.Authorizer(conf)
