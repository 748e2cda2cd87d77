# SPDX-License-Identifier: Apache-2.0

"""Puts an agent together from its configuration."""

import functools
import logging
from typing import TYPE_CHECKING

from oslo_config import cfg
import tenacity

from edge_module import enforcer as edge_enforcer
from edge_module import shaper
from edge_module.classify import bpf
from edge_module.classify import classifier as classifiers
from edge_module.classify import nft
from edge_module.ports import port_source
from edge_module.ports import static
from edge_module.privileged import helper_protocol as protocol
from edge_module.qdisc import htb
from edge_module.qdisc import link_speed
from edge_module.qdisc import receiver as edge_receiver
from edge_module.tcplan import model
from virtco import configuration
from virtco import exception
from virtco.wire.health import Problem

if TYPE_CHECKING:
    from edge_module.ports import ovsdb

LOG = logging.getLogger(__name__)


#: Shortest frame of Ethernet, not counting the wire's overhead.
FRAME_MIN_BYTES = 60
#: Time on the uplink above which a super-packet of 64 KiB is cut into frames,
#: reached up to 131 Mbit/s: packets behind it, such as the host's own, wait
#: for its end. Cutting costs processor time per frame. None is cut where the
#: link's limit counts packets as the kernel does.
SUPER_PACKET_S = 0.004


def _tell_of_database(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None
    configuration.tell([Problem('VC-092', str(state.outcome.exception()))],
                       LOG.log)


class Parts:
    """The parts an agent is made of, as its options say."""

    database: 'ovsdb.OvsDb | None' = None

    def __init__(self, conf: cfg.ConfigOpts, kernel: protocol.Kernel):
        self.conf = conf
        self.kernel = kernel
        self.ports: port_source.PortSource = static.StaticPorts(
            conf.edge.ports_file)
        if conf.edge.ports_backend == 'ovs':
            # Its library takes time to load.
            from edge_module.ports import ovsdb
            self.ports = self.database = ovsdb.OvsDb(
                conf.edge.ovsdb_connection)

    def guard(self, dev: str) -> 'ovsdb.OvsGuard | None':
        """Make the guard of an uplink; None without Open vSwitch."""
        if self.database is None:
            return None
        from edge_module.ports import ovsdb
        return ovsdb.OvsGuard(self.database, dev)

    def wait_ready(self) -> None:
        """Return when Open vSwitch answers, if it is needed at all.

        Until then the kernel goes on with what it has.
        """
        if self.database is None:
            return
        tenacity.retry(
            retry=tenacity.retry_if_exception_type(exception.OvsUnavailable),
            wait=tenacity.wait_exponential(min=0.5, max=5),
            before_sleep=_tell_of_database,
        )(self.database.read)()

    def classifier(self) -> classifiers.Classifier:
        """Make the classifier that sees the packets of this virtual switch.

        In the userspace datapath of Open vSwitch they pass no hook of a port.
        """
        dev = self.conf.edge.uplink_dev
        at = dev if self.database is not None and (
            self.database.datapath_of(dev) == 'netdev') else None
        missing = self.kernel.bpf_missing()
        if missing is None:
            return bpf.BpfClassifier(self.kernel, at)
        return nft.NftClassifier(self.kernel, at, missing)

    def receiver(self, egress_bps: float) -> edge_receiver.Receiver | None:
        """Make the guard of the receiving direction; None where it is off."""
        options = self.conf.edge
        if not options.protect_receiver:
            return None
        return edge_receiver.Receiver(
            self.kernel, options.uplink_dev,
            link_speed.ingress_bps(self.conf, egress_bps),
            is_symmetric=not options.link_ingress_bps)

    def enforcer(self) -> edge_enforcer.Enforcer:
        """Make an enforcer for the configured uplink.

        :raises virtco.exception.Invalid: for missing or invalid options.
        """
        options = self.conf.edge
        if not options.uplink_dev:
            raise exception.Invalid(field='[edge] uplink_dev', value=None,
                                    limit='the name of a network device')
        settings = model.TreeSettings(
            min_leaf_bytes=options.leaf_min_bytes,
            link_packet_s=options.wire_overhead_bytes and SUPER_PACKET_S,
            overhead_bytes=options.wire_overhead_bytes,
            frame_min_bytes=options.wire_overhead_bytes
            and FRAME_MIN_BYTES + options.wire_overhead_bytes)
        speeds_bps = {dev: functools.partial(
            link_speed.egress_bps, self.conf, dev)
            for dev in (options.uplink_dev, *options.further_uplinks)}
        try:
            rate_bps = speeds_bps[options.uplink_dev]()
            further = [shaper.Shaper(
                htb.Uplink(self.kernel, dev), speeds_bps[dev],
                settings=settings, guard=self.guard(dev), is_further=True)
                for dev in options.further_uplinks]
        except exception.NotFound as error:
            raise exception.Invalid(
                field='[edge] link_egress_bps', value=0,
                limit=f'a rate, as {error.kwargs["id"]} reports no speed'
            ) from error
        return edge_enforcer.Enforcer(
            htb.Uplink(self.kernel, options.uplink_dev), self.classifier(),
            speeds_bps[options.uplink_dev], settings=settings,
            guard=self.guard(options.uplink_dev),
            receiver=self.receiver(rate_bps), further=further,
            sets_functions=options.set_vf_rates)
