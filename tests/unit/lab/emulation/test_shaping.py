# SPDX-License-Identifier: Apache-2.0

from virtco_lab.emulation import shaping


def test_both_ways_have_the_rate():
    lines = shaping.limit_commands('h0', 4e7)
    for dev in ('h0', 'ifb-h0'):
        assert any(f'class add dev {dev} ' in line
                   and 'rate 40000000bit ceil 40000000bit' in line
                   for line in lines)
    assert any('mirred egress redirect dev ifb-h0' in line for line in lines)


def test_acknowledgements_go_first_within_the_rate():
    lines = shaping.limit_commands('h0', 4e7)
    for dev in ('h0', 'ifb-h0'):
        data, acks = [next(line for line in lines if
                           f'dev {dev} parent 1:9 classid {which} ' in line)
                      for which in ('1:1', '1:2')]
        assert 'rate 38000000bit' in data and data.endswith('prio 1')
        assert 'rate 2000000bit' in acks and acks.endswith('prio 0')
        assert any(f'filter add dev {dev} parent 1: ' in line
                   and line.endswith('flowid 1:2') for line in lines)


def test_change_touches_rates_only():
    lines = shaping.limit_commands('h0', 4e7, verb='change')
    assert len(lines) == 6
    assert all(line.startswith('class change dev ') for line in lines)
