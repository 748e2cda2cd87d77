# SPDX-License-Identifier: Apache-2.0

"""The speed of the uplink, configured or as the device reports it."""

from oslo_config import cfg

from virtco import exception

_UNKNOWN = (0, 0xFFFF, 0xFFFFFFFF, -1)


def speed_bps(dev: str) -> float:
    """Read the speed that a device reports, in bit/s.

    :raises virtco.exception.NotFound: when it reports none.
    """
    from pyroute2 import Ethtool  # costs a third of a second to import
    ethtool = Ethtool()
    try:
        mbps = ethtool.get_link_mode(dev).speed
    except Exception as error:  # drivers and kernels answer in many ways
        raise exception.NotFound(what='link speed of', id=dev) from error
    finally:
        ethtool.close()
    if mbps is None or mbps in _UNKNOWN:
        raise exception.NotFound(what='link speed of', id=dev)
    return float(mbps * 1e6)


def egress_bps(conf: cfg.ConfigOpts, dev: str) -> float:
    """Return the usable rate of an uplink for sending, in bit/s.

    :param dev: ``[edge] uplink_dev``, or one of ``further_uplinks``.
    :raises virtco.exception.NotFound: when neither the configuration nor the
        device tells it.
    """
    rate_bps = conf.edge.further_uplinks.get(
        dev, conf.edge.link_egress_bps) or speed_bps(dev)
    return float((1 - conf.edge.link_margin) * rate_bps)


def ingress_bps(conf: cfg.ConfigOpts, egress_bps: float) -> float:
    """Return the usable rate of the uplink for receiving, in bit/s.

    :param egress_bps: result of :func:`egress_bps`, the default.
    """
    if not conf.edge.link_ingress_bps:
        return egress_bps
    return float((1 - conf.edge.link_margin) * conf.edge.link_ingress_bps)
