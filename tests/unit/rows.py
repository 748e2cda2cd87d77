# SPDX-License-Identifier: Apache-2.0

"""Columns of flows, ports and rates as rows, for tests."""

from typing import NamedTuple

import numpy as np

from virtco.model import live


class Flow(NamedTuple):
    src_host: str
    dst_host: str
    remaining_bytes: float


class Port(NamedTuple):
    host: str
    egress_bps: float
    ingress_bps: float


class Rate(NamedTuple):
    src_host: str
    dst_host: str
    rate_bps: float


def columns(flows):
    """From rows, each pair once."""
    flows = [Flow(*flow) for flow in flows]
    return live.Flows(live.Pairs(flow[:2] for flow in flows), np.array([
        flow.remaining_bytes for flow in flows], float))


def flows(columns):
    return [Flow(*pair, size_bytes) for pair, size_bytes in zip(
        columns.pairs, columns.remaining_bytes.tolist(), strict=True)]


def rates(columns):
    """One for each pair, also where nothing is left."""
    return [Rate(*pair, rate_bps) for pair, rate_bps in zip(
        columns.pairs, columns.rate_bps.tolist(), strict=True)]


def port_columns(ports):
    ports = [Port(*port) for port in ports]
    return live.Ports(
        tuple(port.host for port in ports),
        np.array([port.egress_bps for port in ports], float),
        np.array([port.ingress_bps for port in ports], float))


def ports(columns):
    return [Port(*row) for row in zip(
        columns.hosts, columns.egress_bps.tolist(),
        columns.ingress_bps.tolist(), strict=True)]
