# SPDX-License-Identifier: Apache-2.0

"""Metrics in Prometheus's text form, made from the last report."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from prometheus_client import core
from prometheus_client import registry
from prometheus_client import start_http_server

from edge_module import reporting as report
from edge_module import stream

LOG = logging.getLogger(__name__)


_Kind = type[core.GaugeMetricFamily] | type[core.CounterMetricFamily]
_GAUGE, _COUNTER = core.GaugeMetricFamily, core.CounterMetricFamily


class EdgeCollector(registry.Collector):
    """Reads the agent when it is asked, and keeps nothing of its own."""

    def __init__(self, reporter: report.Reporter, link: stream.Link):
        self.reporter = reporter
        self.link = link
        self.enforcer = reporter.enforcer

    def collect(self) -> Iterator[core.Metric]:
        """Yield the metrics of the last report, in bytes, bit/s and counts."""
        report = self.reporter.last_report
        yield _one(_GAUGE, 'controller_up',
                   'Whether the controller answered the last call.',
                   self.link.is_up)
        yield _one(_GAUGE, 'policy_ttls_past',
                   'How often the time to live of the policy passed.',
                   self.enforcer.n_past)
        yield _one(_GAUGE, 'healthy',
                   'Whether the kernel holds what the policy says.',
                   report is not None and report.health == 'ok')
        yield core.InfoMetricFamily(
            'virtco_edge_enforcement', 'What classifies.', {
                'classifier': self.enforcer.classifier.name})
        if report is None:
            return
        yield _one(_GAUGE, 'applied_generation',
                   'Generation of the policy that is enforced.',
                   report.applied_generation)
        yield _one(_GAUGE, 'ports', 'VM ports that are classified.',
                   len(report.ports))
        reasons = collections.Counter(note.partition(':')[0] for port
                                      in report.ports for note in port.notes)
        yield _family(_GAUGE, 'ports_not_managed',
                      'VM ports whose traffic is not, or not all, managed, by '
                      'the reason.', ('reason',), sorted(reasons.items()))
        yield _one(_COUNTER, 'cpu_seconds',
                   'CPU time of the edge module itself.', report.cpu_s or 0)
        yield _one(_COUNTER, 'uplink_sent_bytes', 'Bytes sent by the uplink.',
                   report.uplink_sent_bytes)
        yield _one(_COUNTER, 'default_sent_bytes',
                   'Bytes of the uplink that belong to no coflow.',
                   report.default_sent_bytes)
        yield from _by_field('shared', 'part', report.shared, {
            'sent_bytes': 'Bytes of the host, of unmanaged VM traffic, and of '
                          "the coflows' control packets.",
            'drops': 'Packets of theirs that a full queue dropped.',
            'backlog_bytes': 'Bytes of theirs that wait.'})
        # Destinations without a limit of their own are ``others``.
        limited = {row.host or 'others': row
                   for row in report.unmanaged.limited}
        yield from _by_field('limited', 'destination', limited, {
            'sent_bytes': 'Unmanaged bytes to a host where coflows arrive.',
            'backlog_bytes': 'Those that wait.'})
        dropped = self.reporter.readings.limited_drops()
        yield _family(_COUNTER, 'limited_drops',
                      'Unmanaged packets to it that a full queue dropped.',
                      ('destination',), (
                          (name, dropped.get(row.host or '', 0))
                          for name, row in limited.items()))
        yield _family(_COUNTER, 'coflow_sent_bytes',
                      'Bytes of a coflow to a host.',
                      ('coflow', 'destination'), (
                          (coflow.coflow_id, child.host, child.sent_bytes)
                          for coflow in report.coflows
                          for child in coflow.destinations))
        yield from _by_field('coflow', 'coflow', {
            coflow.coflow_id: coflow for coflow in report.coflows}, {
            'sent_packets': 'Packets of a coflow.',
            'drops': 'Packets of a coflow that its full queue dropped.',
            'backlog_bytes': 'Bytes of a coflow that wait.'})
        policy = self.enforcer.policy
        unmanaged = policy.unmanaged if policy is not None else None
        yield _family(_GAUGE, 'limit_bps',
                      'Limit of what is sent to it, in bits per second.',
                      ('destination',), () if unmanaged is None else (
                          ('others', unmanaged.others_bps),
                          *((limit.host, limit.rate_bps)
                            for limit in unmanaged.limits)))
        yield _family(_GAUGE, 'coflow_rate_bps',
                      'Rate the policy gives a coflow, in bits per second.',
                      ('coflow', 'name'), () if policy is None else (
                          (coflow.coflow_id, coflow.name, coflow.rate_bps)
                          for coflow in policy.classes))


def _family(kind: _Kind, name: str, text: str, labels: Sequence[str],
            rows: Iterable[tuple[Any, ...]]) -> core.Metric:
    """Return a metric with a sample for each row of labels and a value."""
    found = kind(f'virtco_edge_{name}', text, labels=labels)
    for *values, value in rows:
        found.add_metric(values, value)
    return found


def _one(kind: _Kind, name: str, text: str, value: float) -> core.Metric:
    return _family(kind, name, text, (), ((float(value),),))


def _by_field(subject: str, label: str, rows: Mapping[str, Any],
              texts: Mapping[str, str]) -> Iterator[core.Metric]:
    """Yield a metric for each field that has a text; a backlog is a gauge."""
    for field, text in texts.items():
        yield _family(_GAUGE if field == 'backlog_bytes' else _COUNTER,
                      f'{subject}_{field}', text, (label,), (
                          (name, getattr(row, field))
                          for name, row in rows.items()))


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
