# SPDX-License-Identifier: Apache-2.0

"""Metrics in Prometheus's text form, made from the last report."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from oslo_config import cfg
from oslo_log import log as logging
from prometheus_client import core
from prometheus_client import registry
from prometheus_client import start_http_server

from edge_module import reporting as report
from edge_module import stream
from virtco.wire import reports

LOG = logging.getLogger(__name__)


class EdgeCollector(registry.Collector):
    """Reads the agent when it is asked, and keeps nothing of its own."""

    def __init__(self, reporter: report.Reporter, link: stream.Link):
        self.reporter = reporter
        self.link = link
        self.enforcer = reporter.enforcer

    def collect(self) -> Iterator[core.Metric]:
        report = self.reporter.last_report
        yield _gauge('virtco_edge_controller_up',
                     'Whether the controller answered the last call.',
                     self.link.is_up)
        yield _gauge('virtco_edge_policy_ttls_past',
                     'How often the time to live of the policy passed.',
                     self.enforcer.n_past)
        yield _gauge('virtco_edge_healthy',
                     'Whether the kernel holds what the policy says.',
                     report is not None and report.health == 'ok')
        yield core.InfoMetricFamily(
            'virtco_edge_enforcement', 'What classifies.', {
                'classifier': self.enforcer.classifier.name})
        if report is None:
            return
        yield _gauge('virtco_edge_applied_generation',
                     'Generation of the policy that is enforced.',
                     report.applied_generation)
        yield _gauge('virtco_edge_ports', 'VM ports that are classified.',
                     len(report.ports))
        yield _noted(report.ports)
        yield from self._traffic(report)
        yield _counter('virtco_edge_cpu_seconds',
                       'CPU time of the edge module itself.',
                       report.cpu_s or 0)

    def _traffic(self, report: reports.Report) -> Iterator[core.Metric]:
        yield _counter('virtco_edge_uplink_sent_bytes',
                       'Bytes sent by the uplink.',
                       report.uplink_sent_bytes)
        yield _counter('virtco_edge_default_sent_bytes',
                       'Bytes of the uplink that belong to no coflow.',
                       report.default_sent_bytes)
        yield from _shared(report.shared)
        yield from self._limited(report.unmanaged.limited)
        sent = core.CounterMetricFamily(
            'virtco_edge_coflow_sent_bytes', 'Bytes of a coflow to a host.',
            labels=('coflow', 'destination'))
        packets = core.CounterMetricFamily(
            'virtco_edge_coflow_sent_packets', 'Packets of a coflow.',
            labels=('coflow',))
        drops = core.CounterMetricFamily(
            'virtco_edge_coflow_drops', 'Packets of a coflow that its full '
            'queue dropped.', labels=('coflow',))
        backlog = core.GaugeMetricFamily(
            'virtco_edge_coflow_backlog_bytes', 'Bytes of a coflow that '
            'wait.', labels=('coflow',))
        for entry in report.coflows:
            coflow_id = entry.coflow_id
            for child in entry.destinations:
                sent.add_metric((coflow_id, child.host),
                                child.sent_bytes)
            packets.add_metric((coflow_id,), entry.sent_packets)
            drops.add_metric((coflow_id,), entry.drops)
            backlog.add_metric((coflow_id,), entry.backlog_bytes)
        yield from (sent, packets, drops, backlog, self._rates())

    def _limited(self, rows: Iterable[reports.LimitCounter]
                 ) -> Iterator[core.Metric]:
        """Yield the metrics of unmanaged traffic by limited destination.

        Destinations without a limit of their own are ``others``.
        """
        label = ('destination',)
        sent = core.CounterMetricFamily(
            'virtco_edge_limited_sent_bytes', 'Unmanaged bytes to a host '
            'where coflows arrive.', labels=label)
        backlog = core.GaugeMetricFamily(
            'virtco_edge_limited_backlog_bytes', 'Those that wait.',
            labels=label)
        drops = core.CounterMetricFamily(
            'virtco_edge_limited_drops', 'Unmanaged packets to it that a '
            'full queue dropped.', labels=label)
        rate = core.GaugeMetricFamily(
            'virtco_edge_limit_bps', 'Limit of what is sent to it, in bits '
            'per second.', labels=label)
        dropped = self.reporter.readings.limited_drops()
        for row in rows:
            host = row.host or 'others'
            sent.add_metric((host,), row.sent_bytes)
            backlog.add_metric((host,), row.backlog_bytes)
            drops.add_metric((host,), dropped.get(row.host or '', 0))
        policy = self.enforcer.policy
        unmanaged = policy.unmanaged if policy is not None else None
        if unmanaged is not None:
            rate.add_metric(('others',), unmanaged.others_bps)
            for limit in unmanaged.limits:
                rate.add_metric((limit.host,), limit.rate_bps)
        yield from (sent, backlog, drops, rate)

    def _rates(self) -> core.Metric:
        rates = core.GaugeMetricFamily(
            'virtco_edge_coflow_rate_bps', 'Rate the policy gives a coflow, '
            'in bits per second.', labels=('coflow', 'name'))
        policy = self.enforcer.policy
        for coflow in policy.classes if policy is not None else ():
            rates.add_metric((coflow.coflow_id, coflow.name),
                             coflow.rate_bps)
        return rates


def _shared(parts: Mapping[str, reports.PartCounters]
            ) -> Iterator[core.Metric]:
    label = ('part',)
    sent = core.CounterMetricFamily(
        'virtco_edge_shared_sent_bytes', 'Bytes of the host, of unmanaged VM '
        "traffic, and of the coflows' control packets.", labels=label)
    drops = core.CounterMetricFamily(
        'virtco_edge_shared_drops', 'Packets of theirs that a full queue '
        'dropped.', labels=label)
    backlog = core.GaugeMetricFamily(
        'virtco_edge_shared_backlog_bytes', 'Bytes of theirs that wait.',
        labels=label)
    for part, seen in parts.items():
        sent.add_metric((part,), seen.sent_bytes)
        drops.add_metric((part,), seen.drops)
        backlog.add_metric((part,), seen.backlog_bytes)
    yield from (sent, drops, backlog)


def _noted(ports: Iterable[reports.Port]) -> core.Metric:
    noted = core.GaugeMetricFamily(
        'virtco_edge_ports_not_managed', 'VM ports whose traffic is not, or '
        'not all, managed, by the reason.', labels=('reason',))
    reasons = [note.partition(':')[0] for port in ports
               for note in port.notes]
    for reason in sorted(set(reasons)):
        noted.add_metric((reason,), reasons.count(reason))
    return noted


def _gauge(name: str, text: str, value: float) -> core.Metric:
    return core.GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> core.Metric:
    return core.CounterMetricFamily(name, text, value=float(value))


def serve(conf: cfg.ConfigOpts, reporter: report.Reporter, link: stream.Link
          ) -> None:
    """Serve the metrics from a thread of their own, if the port is free."""
    own = registry.CollectorRegistry()
    own.register(EdgeCollector(reporter, link))
    options = conf.edge
    try:
        start_http_server(options.metrics_port, options.metrics_address, own)
    except OSError as error:
        LOG.error('No metrics on port %d: %s', options.metrics_port, error)
