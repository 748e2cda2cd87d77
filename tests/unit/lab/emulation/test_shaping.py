# SPDX-License-Identifier: Apache-2.0

import pytest

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


def test_queues_hold_the_windows_of_a_host_and_its_acknowledgements():
    lines = shaping.limit_commands('h0', 4e7)
    for dev in ('h0', 'ifb-h0'):
        assert f'qdisc add dev {dev} parent 1:1 handle 10: bfifo limit ' + str(
            4 * 1024 * 1024) in lines
        assert f'qdisc add dev {dev} parent 1:2 handle 20: bfifo limit ' + str(
            128 * 1024) in lines
    root, = (line for line in lines if 'dev h0 parent 1: classid 1:9' in line)
    assert root.endswith('quantum 65536 prio 0')


@pytest.mark.parametrize(('rate_bps', 'asked', 'burst'), [
    # Two milliseconds, but 16 KB at least; or what is asked for.
    (4e7, None, 16 * 1024), (1e9, None, 250_000), (1e9, 5000, 5000)])
def test_a_bucket_outlasts_a_late_timer(rate_bps, asked, burst):
    lines = shaping.limit_commands('h0', rate_bps, 'change', asked)
    assert all(f' burst {burst} cburst {burst} ' in line for line in lines)


def test_a_single_bucket_is_two_milliseconds_where_that_is_more():
    assert [shaping.bucket_command('a', rate_bps, 0.05) for rate_bps in (
        64e6, 1e9)] == [
        f'qdisc add dev a root tbf rate {rate}bit burst {burst} latency 50ms'
        for rate, burst in ((64_000_000, 16_000), (1_000_000_000, 250_000))]
    assert shaping.bucket_command('a', 1e9, verb='replace') == (
        'qdisc replace dev a root tbf rate 1000000000bit burst 16384 '
        'limit 1048576')


def test_tc_runs_in_the_namespace_and_must_work(monkeypatch):
    ran = []
    monkeypatch.setattr(shaping.subprocess, 'run', lambda argv, **options: (
        ran.append((argv, options))))
    shaping.run_batch('there', ['one', 'two'])
    shaping.run_batch('there', ['one'], 'ip')
    assert ran == [
        (['nsenter', '--net=/run/netns/there', program, '-batch', '-'],
         {'input': said, 'text': True, 'check': True, 'capture_output': True})
        for program, said in (('tc', 'one\ntwo\n'), ('ip', 'one\n'))]
