# SPDX-License-Identifier: Apache-2.0

"""What Prometheus is shown, with and without names."""

import pytest

from virtco import metrics

#: Whoever stored series asks for the same buckets later.
BUCKETS = {
    'virtco_placement_phase_seconds': [
        .001, .003, .01, .03, .1, .3, 1, 3],
    'virtco_placement_seconds': [
        .002, .005, .01, .02, .05, .1, .2, .3, .5, .8, 1.2, 5],
    'virtco_plan_seconds': [
        .005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 10],
    'virtco_resolve_seconds': [
        .001, .002, .005, .01, .02, .05, .1, .5],
    'virtco_coflow_cct_seconds': [
        .1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000],
    'virtco_coflow_cct_ratio': [
        .5, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10]}


def test_the_buckets_of_each_histogram():
    found = metrics.Metrics()
    found.phase_seconds.labels('solve').observe(0.0)
    seen = {family.name: [
        float(sample.labels['le']) for sample in family.samples
        if sample.name.endswith('_bucket')]
        for family in found.registry.collect() if family.type == 'histogram'}
    assert seen == {name: [*bounds, float('inf')]
                    for name, bounds in BUCKETS.items()}


@pytest.mark.parametrize('attribute, labels, worst', [
    ('measured_bps', {'host': '', 'way': 'egress'}, 1.0),
    ('poor', {'subject': '', 'kind': 'egress'}, 1.0),
    ('generation_lag', {'host': ''}, 3.0),
    ('report_age', {'host': ''}, 3.0),
    ('debts', {'project_id': ''}, 3.0)])
def test_without_names_the_worst_of_all_is_shown(attribute, labels, worst):
    name, *rest = labels
    for has_names, found in ((True, metrics.Metrics(True)),
                             (False, metrics.Metrics())):
        gauge = getattr(found, attribute)
        shown = next(family.name for family in found.registry.collect()
                     if family.name == gauge._gauge._name)

        def value(of, shown=shown, found=found):
            return found.registry.get_sample_value(shown, labels | {name: of})

        others = tuple(labels[key] for key in rest)
        gauge.replace({(one, *others): size for one, size in (
            ('a', 1.0), ('b', 3.0), ('c', 2.0))})
        assert [value(of) for of in ('a', 'b', 'c', '')] == (
            [1.0, 3.0, 2.0, None] if has_names else [None] * 3 + [worst])
        # What is not told again is gone.
        gauge.replace({('c', *others): 4.0})
        assert [value(of) for of in ('a', 'c', '')] == (
            [None, 4.0, None] if has_names else [None, None, 4.0])


def test_all_is_rendered_as_prometheus_reads_it():
    found = metrics.Metrics()
    found.placements.labels('planned').inc()
    assert b'virtco_placements_total{status="planned"} 1.0\n' in (
        found.render())
