# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of one controller, in a registry of its own."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools

import prometheus_client


class NamedGauge:
    """Gauge whose first label is the name of a host or project.

    :param has_names: False: the label is empty, and the value the worst of
        all names.
    """

    def __init__(self, gauge: prometheus_client.Gauge, has_names: bool,
                 worst: Callable[[Iterable[float]], float] = max):
        self._gauge = gauge
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


class Metrics:
    """Metrics of a process, in the format of Prometheus.

    :param has_names: whether labels name hosts and projects.
    """

    def __init__(self, has_names: bool = False) -> None:
        self.registry = registry = prometheus_client.CollectorRegistry()
        counter = functools.partial(prometheus_client.Counter,
                                    registry=registry)
        gauge = functools.partial(prometheus_client.Gauge, registry=registry)
        histogram = functools.partial(prometheus_client.Histogram,
                                      registry=registry)
        self.placements = counter(
            'virtco_placements', 'Placement answers by status.', ['status'])
        self.placement_failures = counter(
            'virtco_placement_failures',
            'Placements without an opinion because something went wrong.',
            ['reason'])
        self.late_placements = counter(
            'virtco_late_placements', 'Placements without an opinion for want '
            'of time, by the phase that took most of it.', ['phase'])
        self.placements_under_way = gauge(
            'virtco_placements_under_way', 'Placements being worked on.')
        self.phase_seconds = histogram(
            'virtco_placement_phase_seconds', 'Time per phase of a placement.',
            ['phase'], buckets=(.001, .003, .01, .03, .1, .3, 1, 3))
        self.placement_seconds = histogram(
            'virtco_placement_seconds', 'Time to answer a placement.',
            buckets=(.002, .005, .01, .02, .05, .1, .2, .3, .5, .8, 1.2, 5))
        self.plan_seconds = histogram(
            'virtco_plan_seconds', 'Time the planner took for a group.',
            buckets=(.005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 10))
        self.plans = counter(
            'virtco_plans', 'Plans of groups, by the result of the linear '
            'relaxation: solved and rounded, certified before, no time, not '
            'applicable.', ['relaxation'])
        self.window_groups = counter(
            'virtco_window_groups', 'New groups that waited for others, by '
            'the result: planned together, alone as no other came, late, '
            'refused together, failed.', ['outcome'])
        self.plan_conflicts = counter(
            'virtco_plan_conflicts',
            'Plans repeated because another was committed meanwhile.')
        self.ignored_hints = counter(
            'virtco_ignored_hints', 'Hints that could not be used.')
        self.nova_unplanned = counter(
            'virtco_nova_unplanned_passes',
            'Scheduling passes of Nova that got no plan, as Nova tells later.')
        self.shadow_placements = counter(
            'virtco_shadow_placements', 'Answers kept back in shadow mode by '
            'status: planned, or neutral for a wish that cannot be met.',
            ['status'])
        self.shadow_coflows = counter(
            'virtco_shadow_coflows', 'Coflows that were done in shadow mode, '
            'by the plan compared with the result: faster, slower, alike.',
            ['plan'])
        self.shadow_saved_seconds = counter(
            'virtco_shadow_saved_seconds', 'Measured minus planned CCT of '
            'coflows that were done in shadow mode, where it is above 0.')
        self.shadow_lost_seconds = counter(
            'virtco_shadow_lost_seconds', 'Planned minus measured CCT of '
            'coflows that were done in shadow mode, where it is above 0.')
        self.resolve_seconds = histogram(
            'virtco_resolve_seconds',
            'Time to turn the live coflows into policies.',
            buckets=(.001, .002, .005, .01, .02, .05, .1, .5))
        self.policy_changes = counter(
            'virtco_policy_changes', 'Policy documents published.')
        self.measured_bps = NamedGauge(gauge(
            'virtco_host_measured_bps',
            'Rate of a host by all of its pairs, bits per second.',
            ['host', 'way']), has_names, min)
        self.poor = NamedGauge(gauge(
            'virtco_poor_ratio', 'Measured by expected rate of hosts and leaf '
            'uplinks that a check found poor.', ['subject', 'kind']),
            has_names, min)
        self.generation_lag = NamedGauge(gauge(
            'virtco_generation_lag',
            'Generations between the published and the applied policy.',
            ['host']), has_names)
        self.connections = gauge(
            'virtco_edge_connections',
            'Edge modules that are connected to the distributor.')
        self.refused_connections = counter(
            'virtco_edge_connections_refused',
            'Connections that the distributor did not accept or closed.',
            ['reason'])
        self.throttled = counter(
            'virtco_edge_throttled', 'Times that an edge module was not read '
            'for a while, since it said more than its budget allows.')
        self.unusable_certificates = gauge(
            'virtco_certificates_unusable',
            'Whether changed certificate files cannot be used, so that those '
            'of before are shown, to edge modules and peers (server) or to '
            'the leader (client).', ['end'])
        self.policies_sent = counter(
            'virtco_policies_sent',
            'Policy documents that the distributor sent.')
        self.policies_refused = counter(
            'virtco_policies_refused',
            'Policy documents that edge modules refused.')
        self.intake_failures = counter(
            'virtco_intake_failures',
            'Reports and measurements that could not be taken in.')
        self.probes = counter(
            'virtco_probes',
            'Measurements between hosts by outcome: measured, failed.',
            ['outcome'])
        self.probe_bytes = gauge(
            'virtco_probe_bytes_last_hour',
            'Bytes that measurements sent within the last hour.')
        self.probe_hosts = gauge(
            'virtco_probe_hosts', 'Hosts with all measurements they are to '
            'have (fresh), without (due), and without because the budget of '
            'measurements is used up (held).', ['state'])
        self.report_age = NamedGauge(gauge(
            'virtco_report_age_seconds', "Age of a host's last report.",
            ['host']), has_names)
        self.coflows = gauge('virtco_coflows', 'Coflows by state.', ['state'])
        self.coflow_ends = counter(
            'virtco_coflow_ends', 'Coflows that were done.')
        self.running_vms = gauge(
            'virtco_running_vms', 'VMs of groups on the host that was '
            'planned, on another one, or without a plan (none).', ['host'])
        self.coflow_cct_seconds = histogram(
            'virtco_coflow_cct_seconds',
            'Measured CCT of coflows that were done.',
            buckets=(.1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000))
        self.coflow_cct_ratio = histogram(
            'virtco_coflow_cct_ratio',
            'Measured over planned CCT of coflows that were done.',
            buckets=(.5, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10))
        self.debts = NamedGauge(gauge(
            'virtco_project_debt_bytes',
            'What a project owes for sending more than it claimed.',
            ['project_id']), has_names)
        self.overstating = gauge(
            'virtco_overstating_coflows', 'Coflows whose hint says more '
            'computing than their iterations have time for.')
        self.notifications = counter(
            'virtco_notifications', 'Nova notifications by event type.',
            ['event_type'])
        self.comparisons = counter(
            'virtco_nova_comparisons',
            'Comparisons of the model with Nova by outcome.', ['outcome'])
        self.repairs = counter(
            'virtco_nova_repairs',
            'Servers of which no notification told what Nova says.',
            ['change'])
        self.expired = counter(
            'virtco_reservations_expired',
            'Reservations no VM was built for in time.')
        self.flush_failures = counter(
            'virtco_flush_failures',
            'Failed writes of counted bytes to the database.')
        self.loop_failures = counter(
            'virtco_loop_failures', 'Exceptions in a background loop.',
            ['loop'])

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus_client.generate_latest(self.registry)
