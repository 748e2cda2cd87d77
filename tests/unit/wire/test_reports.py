# SPDX-License-Identifier: Apache-2.0

"""What a report may leave out, and the bounds of what it says."""

import math

import msgspec
import pytest

from virtco.wire import reports

PAIR = {'src_ip': '10.0.0.1', 'dst_ip': '10.0.0.2', 'sent_bytes': 3}
LEAST = {'epoch': 'e', 'applied_generation': 4,
         'link': {'egress_bps': None, 'ingress_bps': 8}, 'ports': [],
         'coflows': [], 'uplink_sent_bytes': 5}


def read(**values):
    return msgspec.convert(LEAST | values, reports.Report)


def nothing_but(kind, values):
    """Decode the fields that are required, and return all others."""
    found = msgspec.to_builtins(msgspec.convert(values, kind))
    return {name: value for name, value in found.items()
            if name not in values}


@pytest.mark.parametrize('kind, values, others', [
    (reports.DestinationCounter, {'host': 'h', 'sent_bytes': 3},
     {'backlog_bytes': 0}),
    (reports.CoflowCounters, {'coflow_id': 'a', 'sent_bytes': 3},
     {'sent_packets': 0, 'drops': 0, 'backlog_bytes': 0,
      'destinations': ()}),
    (reports.PairCounter, PAIR,
     {'dev': None, 'dst_port': None, 'sent_packets': 0}),
    (reports.PartCounters, {},
     {'sent_bytes': 0, 'drops': 0, 'backlog_bytes': 0}),
    (reports.LimitCounter, {'host': None, 'sent_bytes': 3},
     {'backlog_bytes': 0}),
    (reports.Report, LEAST, {
        'boot_id': '', 'boot_ms': None, 'probe': None, 'pairs': (),
        'peers': (), 'default_sent_bytes': 0,
        'unshaped_sent_bytes': 0, 'rdma_received_bytes': 0, 'shared': {},
        'unmanaged': {'macs': (), 'limited': ()}, 'health': None,
        'error': None, 'cpu_s': None})])
def test_what_is_left_out_is_nothing(kind, values, others):
    assert nothing_but(kind, values) == others


def test_a_host_that_has_not_reported_has_sent_nothing():
    assert reports.NO_REPORT == reports.Report(
        epoch='', applied_generation=0, link=reports.Link(None, None),
        ports=(), coflows=(), uplink_sent_bytes=0)


@pytest.mark.parametrize('name, most', [
    ('ports', 10_000), ('coflows', 10_000), ('pairs', 100_000),
    ('peers', 100_000)])
def test_lists_have_bounds(name, most):
    # A list that is not too long is looked into.
    with pytest.raises(msgspec.ValidationError, match=r'Expected `object`'):
        read(**{name: [None] * most})
    with pytest.raises(msgspec.ValidationError, match=f'length <= {most}'):
        read(**{name: [None] * (most + 1)})


@pytest.mark.parametrize('name, good, bad', [
    ('epoch', ['x', 'x' * 64], ['', 'x' * 65]),
    ('applied_generation', [0, 2 ** 62], [-1, 2 ** 62 + 1, 0.5]),
    ('uplink_sent_bytes', [0, 0.5, 1e21],
     [-0.1, math.nextafter(1e21, math.inf)]),
    ('cpu_s', [0, 1e15], [-0.1, math.nextafter(1e15, math.inf)]),
    ('link', [{'egress_bps': 8, 'ingress_bps': 1e15}],
     [{'egress_bps': 7.9, 'ingress_bps': 8},
      {'egress_bps': 8, 'ingress_bps': math.nextafter(1e15, math.inf)}]),
    ('health', ['', 'x' * 4096], ['x' * 4097]),
    ('probe', [{'address': '::', 'port': 1},
               {'address': 'f' * 45, 'port': 65535}],
     [{'address': ':', 'port': 1}, {'address': 'f' * 46, 'port': 1},
      {'address': '::', 'port': 0}, {'address': '::', 'port': 65536},
      {'address': '10.0.0.x', 'port': 1}])])
def test_values_have_bounds(name, good, bad):
    for value in good:
        assert msgspec.to_builtins(getattr(read(**{name: value}), name)) == (
            value | {'dev': None, 'macs': ()} if name == 'link' else value)
    for value in bad:
        with pytest.raises(msgspec.ValidationError, match=name):
            read(**{name: value})


@pytest.mark.parametrize('loss, is_taken', [
    (0, True), (1, True), (-0.1, False), (1.1, False)])
def test_what_a_measurement_tells(loss, is_taken):
    least = {'probe_id': 'p', 'src': 'h1', 'dst': 'h2', 'rate_bps': 8}
    assert nothing_but(reports.Measurement, least) == {
        'lower_bound': False, 'loss': 0.0, 'rtt_s': None,
        'rtt_median_s': None, 'rtt_p99_s': None, 'sent_bytes': None,
        'windows_bytes': None, 'method': ''}
    if is_taken:
        assert msgspec.convert(least | {'loss': loss},
                               reports.Measurement).loss == loss
    else:
        with pytest.raises(msgspec.ValidationError, match='loss'):
            msgspec.convert(least | {'loss': loss}, reports.Measurement)
