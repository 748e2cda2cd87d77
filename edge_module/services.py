# SPDX-License-Identifier: Apache-2.0

"""What runs beside enforcement, which does not depend on it."""

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import pull
from edge_module import report
from edge_module import stream
from edge_module.probe import service as probe_service
from virtco import systemd

LOG = logging.getLogger(__name__)


def start_probe(conf: cfg.ConfigOpts, link: stream.Link
                ) -> probe_service.ProbeService | None:
    """Measure paths by packet trains; None where that is not wanted."""
    if not conf.probe.enabled:
        return None
    try:
        probe = probe_service.ProbeService(conf, link, conf.edge.host)
        probe.start()
    except OSError as error:
        LOG.error('No packet trains, plans use the link speed: %s', error)
        return None
    return probe


def serve_metrics(conf: cfg.ConfigOpts, reporter: report.Reporter,
                  policies: pull.PolicySource) -> None:
    options = conf.edge
    if not options.metrics_port:
        return
    from edge_module import metrics  # only where somebody looks
    try:
        metrics.serve(reporter, policies, options.metrics_address,
                      options.metrics_port)
    except OSError as error:
        LOG.error('No metrics on port %d: %s', options.metrics_port, error)


class Status:
    """Tells systemd how it is; it is ready as soon as it enforces."""

    def __init__(self, dev: str):
        self._well = f'Enforcing on {dev}'
        self._told: str | None = None

    def tell(self, error: str | None) -> None:
        status = error or self._well
        if status != self._told:
            self._told = status
            ready = {'READY': 1} if error is None else {}
            systemd.notify(STATUS=status, **ready)

    def end(self) -> None:
        systemd.notify(STOPPING=1)
