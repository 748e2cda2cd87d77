# SPDX-License-Identifier: Apache-2.0

"""Sizes and rates as people write them."""

import pytest

from virtco import exception
from virtco import hints
from virtco import units
from virtco.wire import placement


@pytest.mark.parametrize('text, size_bytes', [
    ('4096', 4096), ('720MB', 720e6), (' 1.5 GiB ', 1.5 * 2 ** 30),
    ('19G', 19e9), ('2kB', 2e3), ('1e3 KB', 1e6), ('0', 0), ('7B', 7)])
def test_a_size(text, size_bytes):
    assert units.parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize('text, rate_bps', [
    ('1e9', 1e9), ('100Mbit', 1e8), ('1Gbps', 1e9), ('1 Gb/s', 1e9),
    ('10 kbit/s', 1e4), ('2Mibit', 2 ** 21), ('3G', 3e9), ('5bits', 5)])
def test_a_rate(text, rate_bps):
    assert units.parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize('parse', [units.parse_size_bytes,
                                   units.parse_rate_bps])
@pytest.mark.parametrize('text', [
    '', 'fast', '-1', '1e999', '1 XB', '1 2', '5 apples', '1..2', 'MB'])
def test_neither(parse, text):
    with pytest.raises(ValueError, match='^expected a .*, got .'):
        parse(text)


@pytest.mark.parametrize('text, instead', [
    ('1 Gb', '1GB'), ('5Gb', '5GB'), ('5Gbit', '5GB'), ('2 mbps', '2MB'),
    ('3Mib', '3MiB'), ('8b', '8B')])
def test_a_size_that_may_be_bits_is_refused(text, instead):
    with pytest.raises(units.NotAnAmount) as caught:
        units.parse_size_bytes(text)
    assert caught.value.limit == (
        f'a size in bytes, such as {instead}, not in bits')
    assert str(caught.value) == (
        f'expected {caught.value.limit}, got {text!r}')


@pytest.mark.parametrize('text, instead', [
    ('1GB/s', '1Gbit'), ('5Gb', '5Gbit'), ('5 GB', '5Gbit'),
    ('2MBps', '2Mbit')])
def test_a_rate_that_may_be_bytes_is_refused(text, instead):
    with pytest.raises(units.NotAnAmount) as caught:
        units.parse_rate_bps(text)
    assert caught.value.limit == (
        f'a rate in bits per second, such as {instead}, not in bytes')


def test_a_hint_says_what_to_write():
    with pytest.raises(exception.HintInvalid) as caught:
        hints.parse({'virtco:coflow': 'a', 'virtco:tm':
                     '{"n": 2, "flows": [[0, 1, "5Gb"]]}'}, {})
    assert str(caught.value) == (
        'Hint virtco:tm.flows[0][2]: expected a size in bytes, such as 5GB, '
        "not in bits, got '5Gb'.")


@pytest.mark.parametrize('text, time_s', [
    ('250ms', 0.25), ('1.5 s', 1.5), ('2min', 120), ('3', 3), ('1e2us', 1e-4),
    ('1h', 3600)])
def test_times(text, time_s):
    assert units.parse_time_s(text) == pytest.approx(time_s)


@pytest.mark.parametrize('text', ['', 's', '-1s', '1 d', '1e400', 'nan'])
def test_no_times(text):
    with pytest.raises(ValueError):
        units.parse_time_s(text)


@pytest.mark.parametrize('time_s, text', [
    (0, '0 s'), (0.00025, '250 us'), (0.25, '250 ms'), (1.5, '1.5 s'),
    (120, '2 min'), (7200, '2 h')])
def test_times_as_text(time_s, text):
    assert units.format_time(time_s) == text


@pytest.mark.parametrize(('prefix', 'factor'), [
    ('', 1), ('K', 10 ** 3), ('M', 10 ** 6), ('G', 10 ** 9),
    ('T', 10 ** 12), ('P', 10 ** 15), ('Ki', 1024), ('Mi', 1024 ** 2),
    ('Gi', 1024 ** 3), ('Ti', 1024 ** 4), ('Pi', 1024 ** 5)])
def test_every_prefix(prefix, factor):
    assert units.parse_size_bytes(f'3 {prefix}B') == 3 * factor
    assert units.parse_rate_bps(f'3{prefix}bit') == 3 * factor


@pytest.mark.parametrize(('value', 'text'), [
    (0, '0 B'), (999, '999 B'), (1000, '1 kB'), (-2500, '-2.5 kB'),
    (1e6, '1 MB'), (1.5e9, '1.5 GB'), (1e12, '1 TB'), (1e15, '1 PB'),
    (1e18, '1000 PB')])
def test_sizes_as_text(value, text):
    assert units.format_size(value) == text
    assert units.format_rate(value) == text.replace('B', 'bit/s')


@pytest.mark.parametrize(('time_s', 'text'), [
    (0.001, '1 ms'), (1, '1 s'), (60, '1 min'), (3600, '1 h'),
    (-1, '0 s')])
def test_units_of_time_begin_where_they_begin(time_s, text):
    assert units.format_time(time_s) == text


def test_conversions():
    assert units.bytes_per_s_to_bps(3.0) == 24.0
    assert units.kilobytes_per_s_to_bps(3.0) == 24_000.0
    assert units.bps_to_bytes_per_s(24.0) == 3.0
    assert units.ms_to_s(250.0) == 0.25
    assert units.SECONDS_PER_HOUR == 3600
    assert units.transfer_time_s(10.0, 5.0) == 16.0
    assert units.transfer_time_s(1.0, 0.5) == 16.0
    assert units.transfer_time_s(0.5, 8.0) == 0.5
    assert units.transfer_time_s(0.0, 0.0) == 0.0
    assert units.transfer_time_s(1.0, 0.0) == float('inf')


@pytest.mark.parametrize('specs, caps_bps, bursts_bytes', [
    (None, (None, None), (0, 0)), ({}, (None, None), (0, 0)),
    ({'quota:vif_outbound_average': '250000',
      'quota:vif_outbound_peak': '500000',
      'quota:vif_inbound_average': '125000'}, (2e9, 1e9), (256e6, 0)),
    ({'quota:vif_outbound_average': '1', 'quota:vif_outbound_burst': '7',
      'quota:vif_inbound_burst': '9'}, (8e3, None), (7168, 9216)),
    ({'quota:vif_outbound_average': '0',
      'quota:vif_inbound_average': '-1'}, (None, None), (0, 0)),
    ({'quota:vif_inbound_average': 'fast'}, (None, None), (0, 0))])
def test_caps_of_a_flavor_are_bits_per_second(specs, caps_bps, bursts_bytes):
    found = units.vif_caps(specs)
    assert tuple(found) == placement.CAPS
    assert tuple(found.values()) == (*caps_bps, *bursts_bytes)
