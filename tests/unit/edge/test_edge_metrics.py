# SPDX-License-Identifier: Apache-2.0

"""The metrics of an edge module are the numbers of its last report."""

import types

from msgspec import structs

from edge_module import edge_metrics
from tests.unit import made
from tests.unit.edge import test_enforcer
from tests.unit.edge import test_tcplan
from virtco.wire import edge_policy

POLICY = structs.replace(
    test_tcplan.policy([test_tcplan.coflow(0x10, 40e6, (1.0,))]),
    unmanaged=edge_policy.Unmanaged(2e6, (), (
        edge_policy.DestinationLimit('h3', 1, 4e6, ()),)))
REPORT = made.report(
    health='ok', applied_generation=7, cpu_s=1.5, uplink_sent_bytes=100,
    default_sent_bytes=20,
    ports=[{'vm': 'v1', 'notes': ['no address: x', 'away']},
           {'vm': 'v2', 'notes': ['no address: y']}, {'vm': 'v3'}],
    shared={'host': {'sent_bytes': 1, 'drops': 2, 'backlog_bytes': 3}},
    unmanaged={'limited': [
        {'host': 'h3', 'sent_bytes': 4, 'backlog_bytes': 5},
        {'host': 'h4', 'sent_bytes': 6, 'backlog_bytes': 7},
        {'host': None, 'sent_bytes': 8, 'backlog_bytes': 9}]},
    coflows=[{'coflow_id': 'c16', 'sent_bytes': 30, 'sent_packets': 11,
              'drops': 12, 'backlog_bytes': 13, 'destinations': [
                  {'host': 'h2', 'sent_bytes': 14}]}])
#: Packets dropped, by limited host; empty for all other destinations.
DROPS = {'h3': 40, '': 41}


def shown(report, policy=POLICY, is_up=True):
    """Values of the metrics by name without prefix, and by label."""
    enforcer = test_enforcer.make()
    enforcer.policy, enforcer.n_past = policy, 3
    collector = edge_metrics.EdgeCollector(types.SimpleNamespace(
        enforcer=enforcer, last_report=report,
        readings=types.SimpleNamespace(limited_drops=lambda: DROPS)),
        types.SimpleNamespace(is_up=is_up))
    found = {}
    for family in collector.collect():
        for sample in family.samples:
            key = (sample.name.removeprefix('virtco_edge_'),
                   *sample.labels.values())
            assert key not in found
            found[key] = sample.value
    return found


def test_each_number_of_a_report_is_a_metric():
    name = test_enforcer.make().classifier.name
    assert shown(REPORT) == {
        ('controller_up',): 1, ('policy_ttls_past',): 3, ('healthy',): 1,
        ('enforcement_info', name): 1, ('applied_generation',): 7,
        ('ports',): 3, ('ports_not_managed', 'away'): 1,
        ('ports_not_managed', 'no address'): 2,
        ('cpu_seconds_total',): 1.5, ('uplink_sent_bytes_total',): 100,
        ('default_sent_bytes_total',): 20,
        ('shared_sent_bytes_total', 'host'): 1,
        ('shared_drops_total', 'host'): 2,
        ('shared_backlog_bytes', 'host'): 3,
        ('limited_sent_bytes_total', 'h3'): 4,
        ('limited_backlog_bytes', 'h3'): 5,
        ('limited_drops_total', 'h3'): 40,
        ('limited_sent_bytes_total', 'h4'): 6,
        ('limited_backlog_bytes', 'h4'): 7,
        ('limited_drops_total', 'h4'): 0,
        ('limited_sent_bytes_total', 'others'): 8,
        ('limited_backlog_bytes', 'others'): 9,
        ('limited_drops_total', 'others'): 41,
        ('limit_bps', 'others'): 2e6, ('limit_bps', 'h3'): 4e6,
        ('coflow_sent_bytes_total', 'c16', 'h2'): 14,
        ('coflow_sent_packets_total', 'c16'): 11,
        ('coflow_drops_total', 'c16'): 12,
        ('coflow_backlog_bytes', 'c16'): 13,
        ('coflow_rate_bps', 'c16', POLICY.classes[0].name): 40e6}


def test_without_a_report_only_the_state_is_shown():
    found = shown(None, is_up=False)
    assert {key[0] for key in found} == {
        'controller_up', 'policy_ttls_past', 'healthy', 'enforcement_info'}
    assert found['controller_up',] == found['healthy',] == 0


def test_without_a_policy_no_rate_and_no_limit_is_shown():
    for policy in (None, structs.replace(POLICY, unmanaged=None)):
        found = shown(made.replaced(REPORT, health='degraded', cpu_s=None),
                      policy)
        assert found['healthy',] == found['cpu_seconds_total',] == 0
        assert 'limit_bps' not in {key[0] for key in found}
        assert ('coflow_rate_bps' in {key[0] for key in found}) == (
            policy is not None)


def test_the_page_is_served_where_the_options_say(monkeypatch):
    """An address that is taken leaves the edge module without a page."""
    served = []

    def start(port, address, collectors):
        served.append((port, address, [
            sample.value for family in collectors.collect()
            for sample in family.samples
            if sample.name == 'virtco_edge_ports']))
        raise OSError('in use')

    monkeypatch.setattr(edge_metrics, 'start_http_server', start)
    reporter = types.SimpleNamespace(
        enforcer=test_enforcer.started(), last_report=REPORT,
        readings=types.SimpleNamespace(limited_drops=dict))
    edge_metrics.serve(types.SimpleNamespace(edge=types.SimpleNamespace(
        metrics_port=9, metrics_address='127.0.0.9')), reporter,
        types.SimpleNamespace(is_up=True))
    assert served == [(9, '127.0.0.9', [3])]
