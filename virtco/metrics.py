# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of one controller, in a registry of its own."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any
from typing import cast
from typing import TypeVar

import prometheus_client

_M = TypeVar('_M')


class NamedGauge:
    """Gauge whose first label is the name of a host or project.

    :param has_names: False: the label is empty, and the value the worst of
        all names.
    """

    def __init__(self, has_names: bool = False,
                 worst: Callable[[Iterable[float]], float] = max,
                 **options: Any):
        self._gauge = prometheus_client.Gauge(**options)
        self._has_names = has_names
        self._worst = worst

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all values of the gauge.

        :param values: values by the values of all labels.
        """
        shown: dict[tuple[str, ...], list[float]] = {}
        for (name, *rest), value in values.items():
            shown.setdefault((name if self._has_names else '', *rest),
                             []).append(value)
        self._gauge.clear()
        for labels, found in shown.items():
            self._gauge.labels(*labels).set(self._worst(found))


def _declared(kind: Callable[..., _M], told: str, *labels: str,
              **options: Any) -> _M:
    """Declare a metric, called ``virtco_`` and then as its attribute is.

    :param options: ``name``, where it is called otherwise, and those of its
        kind.
    """
    return cast(_M, functools.partial(kind, documentation=told,
                                      labelnames=labels, **options))


_counter = functools.partial(_declared, prometheus_client.Counter)
_gauge = functools.partial(_declared, prometheus_client.Gauge)
_histogram = functools.partial(_declared, prometheus_client.Histogram)


class Metrics:
    """Metrics of a process, in the format of Prometheus.

    :param has_names: whether labels name hosts and projects.
    """

    placements = _counter('Placement answers by status.', 'status')
    placement_failures = _counter(
        'Placements without an opinion because something went wrong.',
        'reason')
    late_placements = _counter(
        'Placements without an opinion for want of time, by the phase that '
        'took most of it.', 'phase')
    placements_under_way = _gauge('Placements being worked on.')
    phase_seconds = _histogram(
        'Time per phase of a placement.', 'phase',
        name='placement_phase_seconds',
        buckets=(.001, .003, .01, .03, .1, .3, 1, 3))
    placement_seconds = _histogram(
        'Time to answer a placement.',
        buckets=(.002, .005, .01, .02, .05, .1, .2, .3, .5, .8, 1.2, 5))
    plan_seconds = _histogram(
        'Time the planner took for a group.',
        buckets=(.005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 10))
    plans = _counter(
        'Plans of groups, by the result of the linear relaxation: solved and '
        'rounded, certified before, no time, not applicable.', 'relaxation')
    window_groups = _counter(
        'New groups that waited for others, by the result: planned together, '
        'alone as no other came, late, refused together, failed.', 'outcome')
    plan_conflicts = _counter(
        'Plans repeated because another was committed meanwhile.')
    ignored_hints = _counter('Hints that could not be used.')
    nova_unplanned = _counter(
        'Scheduling passes of Nova that got no plan, as Nova tells later.',
        name='nova_unplanned_passes')
    shadow_placements = _counter(
        'Answers kept back in shadow mode by status: planned, or neutral for '
        'a wish that cannot be met.', 'status')
    shadow_coflows = _counter(
        'Coflows that were done in shadow mode, by the plan compared with the '
        'result: faster, slower, alike.', 'plan')
    shadow_saved_seconds = _counter(
        'Measured minus planned CCT of coflows that were done in shadow mode, '
        'where it is above 0.')
    shadow_lost_seconds = _counter(
        'Planned minus measured CCT of coflows that were done in shadow mode, '
        'where it is above 0.')
    resolve_seconds = _histogram(
        'Time to turn the live coflows into policies.',
        buckets=(.001, .002, .005, .01, .02, .05, .1, .5))
    policy_changes = _counter('Policy documents published.')
    measured_bps = _declared(
        NamedGauge, 'Rate of a host by all of its pairs, bits per second.',
        'host', 'way', name='host_measured_bps', worst=min)
    poor = _declared(
        NamedGauge, 'Measured by expected rate of hosts and leaf uplinks that '
        'a check found poor.', 'subject', 'kind', name='poor_ratio',
        worst=min)
    generation_lag = _declared(
        NamedGauge, 'Generations between the published and the applied '
        'policy.', 'host')
    connections = _gauge(
        'Edge modules that are connected to the distributor.',
        name='edge_connections')
    refused_connections = _counter(
        'Connections that the distributor did not accept or closed.',
        'reason', name='edge_connections_refused')
    throttled = _counter(
        'Times that an edge module was not read for a while, since it said '
        'more than its budget allows.', name='edge_throttled')
    unusable_certificates = _gauge(
        'Whether changed certificate files cannot be used, so that those of '
        'before are shown, to edge modules and peers (server) or to the '
        'leader (client).', 'end', name='certificates_unusable')
    policies_sent = _counter('Policy documents that the distributor sent.')
    policies_refused = _counter('Policy documents that edge modules refused.')
    intake_failures = _counter(
        'Reports and measurements that could not be taken in.')
    probes = _counter(
        'Measurements between hosts by outcome: measured, failed.', 'outcome')
    probe_bytes = _gauge('Bytes that measurements sent within the last hour.',
                         name='probe_bytes_last_hour')
    probe_hosts = _gauge(
        'Hosts with all measurements they are to have (fresh), without (due), '
        'and without because the budget of measurements is used up (held).',
        'state')
    report_age = _declared(NamedGauge, "Age of a host's last report.", 'host',
                           name='report_age_seconds')
    coflows = _gauge('Coflows by state.', 'state')
    coflow_ends = _counter('Coflows that were done.')
    running_vms = _gauge(
        'VMs of groups on the host that was planned, on another one, or '
        'without a plan (none).', 'host')
    coflow_cct_seconds = _histogram(
        'Measured CCT of coflows that were done.',
        buckets=(.1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000))
    coflow_cct_ratio = _histogram(
        'Measured over planned CCT of coflows that were done.',
        buckets=(.5, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10))
    debts = _declared(
        NamedGauge, 'What a project owes for sending more than it claimed.',
        'project_id', name='project_debt_bytes')
    overstating = _gauge(
        'Coflows whose hint says more computing than their iterations have '
        'time for.', name='overstating_coflows')
    notifications = _counter('Nova notifications by event type.', 'event_type')
    comparisons = _counter('Comparisons of the model with Nova by outcome.',
                           'outcome', name='nova_comparisons')
    repairs = _counter(
        'Servers of which no notification told what Nova says.', 'change',
        name='nova_repairs')
    expired = _counter('Reservations no VM was built for in time.',
                       name='reservations_expired')
    flush_failures = _counter(
        'Failed writes of counted bytes to the database.')
    loop_failures = _counter('Exceptions in a background loop.', 'loop')

    def __init__(self, has_names: bool = False) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        for name, metric in vars(Metrics).items():
            if isinstance(metric, functools.partial):
                options = {'name': name, **metric.keywords}
                if metric.func is NamedGauge:
                    options['has_names'] = has_names
                setattr(self, name, metric.func(
                    namespace='virtco', registry=self.registry, **options))

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus_client.generate_latest(self.registry)
