# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of one controller, in a registry of its own."""

import prometheus_client


class Metrics:
    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.placements = prometheus_client.Counter(
            'virtco_placements', 'Placement answers by status.',
            ['status'], registry=self.registry)
        self.placement_failures = prometheus_client.Counter(
            'virtco_placement_failures',
            'Placements without an opinion because something went wrong.',
            ['reason'], registry=self.registry)
        self.late_placements = prometheus_client.Counter(
            'virtco_late_placements',
            'Placements without an opinion for want of time, by the phase '
            'that took most of it.', ['phase'], registry=self.registry)
        self.placements_under_way = prometheus_client.Gauge(
            'virtco_placements_under_way', 'Placements being worked on.',
            registry=self.registry)
        self.phase_seconds = prometheus_client.Histogram(
            'virtco_placement_phase_seconds', 'Time per phase of a placement.',
            ['phase'], buckets=(.001, .003, .01, .03, .1, .3, 1, 3),
            registry=self.registry)
        self.placement_seconds = prometheus_client.Histogram(
            'virtco_placement_seconds', 'Time to answer a placement.',
            buckets=(.002, .005, .01, .02, .05, .1, .2, .3, .5, .8, 1.2, 5),
            registry=self.registry)
        self.plan_seconds = prometheus_client.Histogram(
            'virtco_plan_seconds', 'Time the planner took for a group.',
            buckets=(.005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 10),
            registry=self.registry)
        self.plans = prometheus_client.Counter(
            'virtco_plans', 'Plans of groups, by what became of the linear '
            'relaxation: solved and rounded, certified before, no time, not '
            'applicable.', ['relaxation'], registry=self.registry)
        self.window_groups = prometheus_client.Counter(
            'virtco_window_groups', 'New groups that waited for others, by '
            'what came of it: planned together, alone as no other came, late, '
            'refused together, failed.', ['outcome'], registry=self.registry)
        self.plan_conflicts = prometheus_client.Counter(
            'virtco_plan_conflicts',
            'Plans made anew because another was committed meanwhile.',
            registry=self.registry)
        self.ignored_hints = prometheus_client.Counter(
            'virtco_ignored_hints', 'Hints that could not be used.',
            registry=self.registry)
        self.nova_unplanned = prometheus_client.Counter(
            'virtco_nova_unplanned_passes',
            'Scheduling passes of Nova that got no plan, as Nova tells later.',
            registry=self.registry)
        self.shadow_placements = prometheus_client.Counter(
            'virtco_shadow_placements', 'Answers kept back in shadow mode by '
            'status: planned, or neutral for a wish that cannot be met.',
            ['status'], registry=self.registry)
        self.shadow_coflows = prometheus_client.Counter(
            'virtco_shadow_coflows', 'Coflows that were done in shadow mode, '
            'by what the plan would have been: faster, slower, alike.',
            ['plan'], registry=self.registry)
        self.shadow_saved_seconds = prometheus_client.Counter(
            'virtco_shadow_saved_seconds', 'Measured minus planned CCT of '
            'coflows that were done in shadow mode, where it is above 0.',
            registry=self.registry)
        self.shadow_lost_seconds = prometheus_client.Counter(
            'virtco_shadow_lost_seconds', 'Planned minus measured CCT of '
            'coflows that were done in shadow mode, where it is above 0.',
            registry=self.registry)
        self.resolve_seconds = prometheus_client.Histogram(
            'virtco_resolve_seconds',
            'Time to turn the live coflows into policies.',
            buckets=(.001, .002, .005, .01, .02, .05, .1, .5),
            registry=self.registry)
        self.policy_changes = prometheus_client.Counter(
            'virtco_policy_changes', 'Policy documents published.',
            registry=self.registry)
        self.measured_bps = prometheus_client.Gauge(
            'virtco_host_measured_bps', 'Rate of a host by all of its pairs, '
            'bits per second.', ['host', 'way'], registry=self.registry)
        self.poor = prometheus_client.Gauge(
            'virtco_poor_ratio', 'Measured by expected rate of hosts and leaf '
            'uplinks that a check found poor.', ['kind', 'subject'],
            registry=self.registry)
        self.generation_lag = prometheus_client.Gauge(
            'virtco_generation_lag',
            'Generations between the published and the applied policy.',
            ['host'], registry=self.registry)
        self.connections = prometheus_client.Gauge(
            'virtco_edge_connections',
            'Edge modules that are connected to the distributor.',
            registry=self.registry)
        self.refused_connections = prometheus_client.Counter(
            'virtco_edge_connections_refused',
            'Connections that the distributor did not accept or closed.',
            ['reason'], registry=self.registry)
        self.policies_sent = prometheus_client.Counter(
            'virtco_policies_sent',
            'Policy documents that the distributor sent.',
            registry=self.registry)
        self.policies_refused = prometheus_client.Counter(
            'virtco_policies_refused',
            'Policy documents that edge modules refused.',
            registry=self.registry)
        self.intake_failures = prometheus_client.Counter(
            'virtco_intake_failures',
            'Reports and measurements that could not be taken in.',
            registry=self.registry)
        self.probes = prometheus_client.Counter(
            'virtco_probes', 'Measurements between hosts by outcome: '
            'measured, failed.', ['outcome'], registry=self.registry)
        self.probe_bytes = prometheus_client.Gauge(
            'virtco_probe_bytes_last_hour',
            'Bytes that measurements sent within the last hour.',
            registry=self.registry)
        self.probe_hosts = prometheus_client.Gauge(
            'virtco_probe_hosts', 'Hosts with all measurements they are to '
            'have (fresh), without (due), and without because the budget of '
            'measurements is used up (held).', ['state'],
            registry=self.registry)
        self.report_age = prometheus_client.Gauge(
            'virtco_report_age_seconds', 'Age of a host\'s last report.',
            ['host'], registry=self.registry)
        self.coflows = prometheus_client.Gauge(
            'virtco_coflows', 'Coflows by state.', ['state'],
            registry=self.registry)
        self.coflow_ends = prometheus_client.Counter(
            'virtco_coflow_ends', 'Coflows that were done.',
            registry=self.registry)
        self.running_vms = prometheus_client.Gauge(
            'virtco_running_vms',
            'VMs of groups on the host that was planned, on another one, or '
            'without a plan (none).', ['host'], registry=self.registry)
        self.coflow_cct_seconds = prometheus_client.Histogram(
            'virtco_coflow_cct_seconds',
            'Measured CCT of coflows that were done.',
            buckets=(.1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000),
            registry=self.registry)
        self.coflow_cct_ratio = prometheus_client.Histogram(
            'virtco_coflow_cct_ratio',
            'Measured over planned CCT of coflows that were done.',
            buckets=(.5, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10),
            registry=self.registry)
        self.debts = prometheus_client.Gauge(
            'virtco_project_debt_bytes',
            'What a project owes for sending more than it claimed.',
            ['project_id'], registry=self.registry)
        self.overstating = prometheus_client.Gauge(
            'virtco_overstating_coflows',
            'Coflows whose hint says more computing than their iterations '
            'have time for.', registry=self.registry)
        self.notifications = prometheus_client.Counter(
            'virtco_notifications', 'Nova notifications by event type.',
            ['event_type'], registry=self.registry)
        self.comparisons = prometheus_client.Counter(
            'virtco_nova_comparisons',
            'Comparisons of the model with Nova by outcome.', ['outcome'],
            registry=self.registry)
        self.repairs = prometheus_client.Counter(
            'virtco_nova_repairs',
            'Servers of which no notification told what Nova says.',
            ['change'], registry=self.registry)
        self.expired = prometheus_client.Counter(
            'virtco_reservations_expired',
            'Reservations no VM was built for in time.',
            registry=self.registry)
        self.flush_failures = prometheus_client.Counter(
            'virtco_flush_failures',
            'Failed writes of counted bytes to the database.',
            registry=self.registry)
        self.loop_failures = prometheus_client.Counter(
            'virtco_loop_failures', 'Exceptions in a background loop.',
            ['loop'], registry=self.registry)

    def render(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)
