# SPDX-License-Identifier: Apache-2.0

"""Alert rules and dashboards ask for metrics and labels that exist."""

import json
import pathlib
import re
import types

import pytest
import yaml

from edge_module import edge_metrics
from tests.unit import made
from virtco import metrics

ETC = pathlib.Path(__file__).parents[2] / 'etc' / 'virtco'
ALERTS = ETC / 'prometheus' / 'alerts.yaml'
DASHBOARD = ETC / 'grafana' / 'virtco.json'
#: Labels that Prometheus or a histogram adds.
ADDED = {'instance', 'job', 'le'}


def exported():
    """Labels of each series, by its name."""
    found = {}
    controller = metrics.Metrics()
    for collector in controller.registry._collector_to_names:
        labels = set(collector._labelnames)
        for family in collector.describe():
            for suffix in {'counter': ['_total'], 'gauge': [''],
                           'histogram': ['_bucket', '_sum', '_count']}[
                               family.type]:
                found[family.name + suffix] = labels
    one = types.SimpleNamespace(coflow_id='c', name='n', rate_bps=1.0)
    enforcer = types.SimpleNamespace(
        n_past=0, policy=types.SimpleNamespace(
            classes=[one], unmanaged=types.SimpleNamespace(
                others_bps=1.0, limits=[types.SimpleNamespace(
                    host='h', rate_bps=1.0)])),
        classifier=types.SimpleNamespace(name='nft'))
    reporter = types.SimpleNamespace(
        enforcer=enforcer,
        readings=types.SimpleNamespace(limited_drops=dict),
        last_report=made.report(
            health='ok', cpu_s=1.0, shared={'host': {}},
            unmanaged={'limited': [{'host': 'h', 'sent_bytes': 1}]},
            coflows=[{'coflow_id': 'c', 'sent_bytes': 1, 'destinations': [
                {'host': 'h', 'sent_bytes': 1}]}]))
    link = types.SimpleNamespace(is_up=True)
    for family in edge_metrics.EdgeCollector(reporter, link).collect():
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found


EXPORTED = exported()


def rules():
    return [rule for group in yaml.safe_load(ALERTS.read_text())['groups']
            for rule in group['rules']]


def panels():
    return json.loads(DASHBOARD.read_text())['panels']


def check(expression, shown=''):
    """Names, and the labels that are grouped by or shown."""
    names = set(re.findall(r'\bvirtco_\w+', expression))
    assert names and names <= set(EXPORTED), names - set(EXPORTED)
    labels = ADDED.union(*(EXPORTED[name] for name in names))
    grouped = [label.strip() for group in re.findall(r'by \(([^)]*)\)',
                                                     expression)
               for label in group.split(',')]
    assert set(grouped) <= labels, expression
    kept = set(grouped) or labels
    assert set(re.findall(r'(?:labels\.|{{)(\w+)', shown)) <= kept, shown
    for name in names:
        if re.search(rf'(?:rate|increase)\({name}\b', expression):
            assert name.endswith(('_total', '_bucket'))
        else:
            assert not name.endswith('_total'), name


def test_the_exported_names_are_those_of_prometheus():
    assert 'virtco_placements_total' in EXPORTED
    assert EXPORTED['virtco_edge_coflow_sent_bytes_total'] == {
        'coflow', 'destination'}
    with pytest.raises(AssertionError):
        check('rate(virtco_placement_total[5m])')
    with pytest.raises(AssertionError):
        check('sum by (host) (rate(virtco_placements_total[5m]))')
    with pytest.raises(AssertionError):
        check('virtco_coflows', '{{host}}')


@pytest.mark.parametrize('rule', rules(), ids=lambda rule: rule['alert'])
def test_alerts(rule):
    check(rule['expr'], rule['annotations']['summary'])
    assert rule['annotations']['runbook'].strip().endswith('.')
    assert rule['labels']['severity'] in ('info', 'warning', 'critical')


def test_alerts_have_names_of_their_own():
    names = [rule['alert'] for rule in rules()]
    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize('panel', panels(), ids=lambda panel: panel['title'])
def test_panels(panel):
    for target in panel['targets']:
        check(target['expr'], target['legendFormat'])


def test_panels_do_not_lie_on_each_other():
    places = {(p['gridPos']['x'], p['gridPos']['y']) for p in panels()}
    assert len(places) == len({p['id'] for p in panels()}) == len(panels())


@pytest.mark.parametrize(('has_names', 'ages', 'ratios'), [
    (True, {'a': 1.0, 'b': 4.0}, {'r': 0.5, 's': 0.25}),
    (False, {'': 4.0}, {'': 0.25})])
def test_names_are_shown_where_they_may_be(has_names, ages, ratios):
    """Otherwise alerts are about the worst."""
    found = metrics.Metrics(has_names)

    def shown(name, label, **rest):
        return {sample.labels[label]: sample.value
                for family in found.registry.collect()
                for sample in family.samples if sample.name == name
                and rest.items() <= sample.labels.items()}

    found.report_age.replace({('gone',): 9.0})
    found.report_age.replace({('a',): 1.0, ('b',): 4.0})
    found.poor.replace({('r', 'leaf-uplink'): 0.5, ('s', 'leaf-uplink'): 0.25,
                        ('r', 'leaf-downlink'): 0.125})
    assert shown('virtco_report_age_seconds', 'host') == ages
    assert shown('virtco_poor_ratio', 'subject', kind='leaf-uplink') == ratios


def test_the_longest_times_that_histograms_tell_apart():
    """What takes longer counts in the bucket without an end."""
    found = metrics.Metrics()
    for histogram, longest in (
            (found.placement_seconds, 5), (found.plan_seconds, 10),
            (found.phase_seconds, 3)):
        assert histogram._kwargs['buckets'][-1] == longest
        assert histogram._kwargs['buckets'] == tuple(
            sorted(histogram._kwargs['buckets']))
