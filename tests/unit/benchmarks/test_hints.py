# SPDX-License-Identifier: Apache-2.0

"""The table of hints of every quality."""

import argparse
import contextlib
import dataclasses
import json
import math
import types

import pytest

from benchmarks import hint_cases
from benchmarks import hint_packets
from benchmarks import hints
from virtco import units
from virtco_lab.emulation import scenario
from virtco_lab.emulation import untold
from virtco_lab.sim import claims
from virtco_lab.sim import controlled

SEED, N_HOSTS = 0, 6
Claim = claims.Claim


def _case(load=0.7):
    return hint_cases.make(SEED, N_HOSTS, load)


def _cell(quality='exact', seed=SEED, **changes):
    return dataclasses.replace(hint_cases.Cell(
        quality, 0.7, N_HOSTS, seed, 'link', 'order'), **changes)


@pytest.mark.parametrize('rate_bps', [20e6, 200e6])
def test_the_busiest_link_carries_the_load(rate_bps):
    case = _cell(rate_bps=rate_bps).case()
    carried = {}
    for one in case.coflows:
        at = case.hosts[one.coflow.name]
        # No two VMs of a coflow meet.
        assert len(set(at)) == one.coflow.n_vms
        for flow in one.coflow.flows:
            for end in ((at[flow.src], 'out'), (at[flow.dst], 'in')):
                carried[end] = carried.get(end, 0) + flow.size_bytes
    busy_s = (max(carried.values())
              / units.bps_to_bytes_per_s(scenario.goodput_bps(rate_bps)))
    assert busy_s == pytest.approx(hint_cases.BUSY_S, rel=1e-3)
    # In units of the mean gap.
    gaps = hint_cases._drawn(SEED, N_HOSTS, rate_bps)[2][1:].sum()
    assert case.coflows[-1].start_s / gaps * len(case.coflows) == (
        pytest.approx(busy_s / 0.7, rel=1e-3))


def test_every_other_coflow_is_many_to_one():
    for one in _case().coflows[1::2]:
        ends = {(flow.src, flow.dst) for flow in one.coflow.flows}
        assert len({dst for _, dst in ends}) == 1
        assert len(ends) >= 3


def test_load_changes_the_starts_alone():
    light, heavy = _case(0.5), _case(0.9)
    assert light.hosts == heavy.hosts
    for one, other in zip(light.coflows, heavy.coflows):
        assert one.coflow == other.coflow
        assert one.start_s == pytest.approx(other.start_s * 0.9 / 0.5)


def test_tenants_say_what_the_quality_says():
    case = _case()

    def made(quality):
        return case.claims(quality, SEED)

    for quality, claim in (
            ('exact', Claim()), ('unknown', Claim(is_sized=False)),
            ('quarter', Claim(0.25)), ('half', Claim(0.5)),
            ('twice', Claim(2.0)), ('four', Claim(4.0)),
            ('late0.5', Claim(late_s=0.5)), ('late1', Claim(late_s=1.0)),
            ('late2', Claim(late_s=2.0)),
            ('told0.5', Claim(late_s=0.5, is_launched=True)),
            ('told2', Claim(late_s=2.0, is_launched=True)),
            ('none', Claim(late_s=claims.NEVER_S))):
        assert made(quality) == [claim] * len(case.coflows)
    assert [one.is_sized for one in made('half-unknown')] == [
        True, False] * 8
    assert [one.factor for one in made('turning')] == [1] * 8 + [0.25, 4] * 4
    factors = [one.factor for one in made('random50')]
    assert len(set(factors)) == len(factors)
    assert 0.5 <= min(factors) < 1 < max(factors) <= 1.5
    assert [i for i, one in enumerate(made('liar'))
            if one == Claim(0.3)] == [case.liar]
    assert [i for i, one in enumerate(made('foreign-tcp'))
            if one == Claim(late_s=claims.NEVER_S)] == [0, 4, 8, 12]


def test_some_qualities_have_a_row_for_each_side():
    case = _case()
    assert case.parts('half', SEED) == {'half': list(range(16))}
    for quality, its in (('liar', [case.liar]),
                         ('foreign-tcp', [0, 4, 8, 12])):
        own, others = case.parts(quality, SEED).values()
        assert own == its
        assert sorted(own + others) == list(range(16))


def test_fluid_orders_unless_there_are_no_hints():
    options = hint_cases.options(_cell())
    assert options.work_conserving and not options.is_fair
    assert not hint_cases.options(_cell(ceil='rate')).work_conserving
    assert hint_cases.options(_cell('none')).is_fair
    assert hint_cases.options(_cell()).quiet_s == 1.0
    assert hint_cases.options(_cell(options=(('quiet_s', '2'),))
                              ).quiet_s == 2.0


@pytest.mark.full(reason='seconds of simulation',
                  still='the fluid by tests of controlled')
def test_order_at_both_ends_is_better_than_none():
    none_s, exact_s = (sum(sum(hint_cases.fluid_s(_cell(quality, seed)))
                           for seed in range(2))
                       for quality in ('none', 'exact'))
    assert exact_s < 0.97 * none_s


@pytest.mark.parametrize('load', [0.5, 0.9])
def test_no_schedule_is_below_the_bound(load):
    """Neither what is shared as TCP shares it nor the best order known."""
    least_s, ideal_s = (
        sum(hint_cases.fluid_s(_cell(quality, load=load))) / 16
        for quality in ('bound', 'ideal'))
    alone_s = sum(max(
        carried for side in ('src', 'dst') for end in {
            getattr(flow, side) for flow in one.coflow.flows}
        for carried in [sum(flow.size_bytes for flow in one.coflow.flows
                            if getattr(flow, side) == end)])
        for one in _case(load).coflows) / 16 / units.bps_to_bytes_per_s(
            scenario.goodput_bps(20e6))
    assert alone_s < least_s < ideal_s < 1.1 * least_s


@pytest.mark.parametrize('text, seeds', [('3', range(3)), ('7-8', range(7, 9)),
                                         ('4-4', range(4, 5))])
def test_seeds_are_the_first_or_from_one_to_another(text, seeds):
    assert hints._seeds(text) == seeds


@pytest.mark.parametrize('text', ['0', '3-2', 'a', '-1'])
def test_no_seeds_are_an_error(text):
    with pytest.raises(ValueError):
        hints._seeds(text)


def test_a_cell_says_how_late_the_controller_knows(monkeypatch):
    told = []
    monkeypatch.setattr(hint_cases.misled, 'expect', lambda *args: (
        told.append(args[-1]), (1.0,))[1])
    for cell in (_cell(), *hints.cells(
            _args(report_s=0.9, look_s=0.2))[:1]):
        hint_cases.fluid_s(cell)
    assert told == [controlled.Timing(), controlled.Timing(
        report_s=0.9, look_s=0.2)]


def _runs():
    """Of two seeds; who has hints needs 0.8 or 1.0 of the time."""
    none_s = list(map(float, range(1, 17)))
    runs = {}
    for seed, factor in ((0, 0.8), (1, 1.0)):
        exact_s = [factor * cct_s for cct_s in none_s]
        lied_s = list(exact_s)
        lied_s[hint_cases.make(seed, N_HOSTS, 0.7).liar] *= 2
        runs |= {_cell('none', seed): none_s, _cell('exact', seed): exact_s,
                 _cell('liar', seed): lied_s}
    return runs


def test_rows_are_over_the_seeds():
    rows = {row.quality: row for row in hints.rows(_runs())}
    assert set(rows) == {'none', 'exact', 'liar: his own', 'liar: the others'}
    exact = rows['exact']
    assert exact.mean_over_none == pytest.approx(0.9)
    assert exact.worst_over_none == pytest.approx(1.0)
    assert exact.p95_over_none == pytest.approx(0.99)
    # Student's t with one degree of freedom.
    assert exact.ci95 == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert exact.mean_over_exact == 1 and exact.seeds == 2
    assert rows['none'].mean_over_none == 1
    assert rows['liar: his own'].mean_over_exact == pytest.approx(2)
    assert rows['liar: the others'].mean_over_exact == pytest.approx(1)


def test_no_row_without_plain_tcp():
    runs = _runs()
    del runs[_cell('none', 0)]
    assert {row.seeds for row in hints.rows(runs)} == {1}
    assert hints.rows({_cell('exact'): [1.0]}) == []


def test_rows_of_one_seed_have_no_interval():
    rows = hints.rows({cell: ccts_s for cell, ccts_s in _runs().items()
                       if cell.seed == 0})
    assert all(math.isnan(row.ci95) for row in rows)
    assert hints.show(rows).row_count == len(rows)


def test_the_gain_is_told_by_length():
    runs = {_cell('none'): [0.5, 1.0, 3.5], _cell('exact'): [0.6, 0.5, 3.5],
            _cell('none', 1): [0.9, 2.0, 2.1], _cell('half'): [9.0] * 3,
            _cell('exact', 1): [0.9, 2.0, 3.1], _cell('twice', 2): [1.0]}
    shown = hints.by_length(runs)
    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == ['none', 'exact', 'half']
    # Of 10 s in two seeds; medium: -0.5 + 1.0.
    assert [column[1] for column in cells[4:]] == [
        '+1.0 (2)', '+5.0 (3)', '+0.0 (1)']
    assert [column[2] for column in cells[4:]] == [
        '+170.0 (1)', '+160.0 (1)', '+110.0 (1)']


def test_foreign_datagrams_are_compared_with_plain_tcp_beside_them():
    found = hints.cells(_args(hosts=(6,), loads=(0.7,), seeds=range(1),
                              qualities=('foreign-udp',), packets=True))
    assert {cell.quality for cell in found} == {
        'none-udp', 'exact', 'foreign-udp'}
    runs = {_cell('none-udp'): [2.0] * 16, _cell('foreign-udp'): [1.0] * 16,
            _cell('exact'): [1.0] * 16}
    rows = {row.quality: row.mean_over_none for row in hints.rows(runs)}
    assert rows == {'none-udp': 1.0, 'foreign-udp: the foreign': 0.5,
                    'foreign-udp: the hinted': 0.5}
    assert not any('udp' in cell.quality or 'told' in cell.quality
                   for cell in hints.cells(_args()))


def _args(**changes):
    return argparse.Namespace(**{
        'hosts': (6, 18), 'loads': (0.5, 0.7), 'qualities': None,
        'seeds': range(2), 'short': False, 'part': (1, 1), 'ceil': 'link',
        'receiver': 'tcp', 'packets': False, 'options': (),
        'rate': hint_cases.RATE_BPS,
        'report_s': 0.1, 'look_s': math.inf,
        **changes})


def test_all_qualities_are_run_at_one_load():
    cells = hints.cells(_args())
    assert len(set(cells)) == len(cells)
    all_of = {(cell.hosts, cell.load) for cell in cells
              if cell.quality == 'four'}
    assert all_of == {(6, 0.7)}
    for quality in ('none', 'exact', 'unknown', 'half'):
        assert {(cell.hosts, cell.load, cell.seed) for cell in cells
                if cell.quality == quality} == {
            (n_hosts, load, seed) for n_hosts in (6, 18)
            for load in (0.5, 0.7) for seed in (0, 1)}


def test_parts_are_all_together():
    whole = hints.cells(_args(seeds=range(5)))
    parts = [hints.cells(_args(seeds=range(5), part=(k, 3)))
             for k in (1, 2, 3)]
    assert sorted(map(str, sum(parts, []))) == sorted(map(str, whole))
    assert all(parts)


def test_a_wanted_quality_comes_with_those_it_is_compared_to():
    cells = hints.cells(_args(hosts=(6,), loads=(0.7,), seeds=range(1),
                              qualities=('late2',)))
    assert {cell.quality for cell in cells} == {'none', 'exact', 'late2'}
    assert {cell.receiver for cell in hints.cells(_args(packets=True))} == {
        'product'}


def test_runs_are_read_again(tmp_path):
    path = tmp_path / 'runs.jsonl'
    assert hints.read(path) == {}
    cell = _cell(options=(('quiet_s', '2'),))
    path.write_text(json.dumps({
        'cell': dataclasses.asdict(cell), 'ccts_s': [1.0],
        'waited': 0.1}) + '\n')
    assert hints.read(path) == {cell: [1.0]}


SHOWN = types.SimpleNamespace(say=print)


@pytest.fixture
def bed(monkeypatch):
    made = types.SimpleNamespace(slots=[], controllers=[], sent=[], beside=[],
                                 waited=iter(()))

    class Bed:
        def wait_measured(self):
            pass

        def send(self, coflows, claimed, hosts, scheme, beside):
            made.sent.append((claimed, hosts, scheme))
            made.beside.append(beside)
            waited = next(made.waited, 0.0)
            return types.SimpleNamespace(
                usage=types.SimpleNamespace(waited=waited),
                ccts_s=(float(len(made.sent)),))

    def open_bed(bed, say):
        made.slots.append(bed.slots)
        made.controllers.append(bed.controller)
        return contextlib.nullcontext(Bed())

    monkeypatch.setattr(untold, 'Bed', open_bed)
    return made


def test_all_qualities_are_sent_from_the_same_hosts(bed, tmp_path):
    todo = [_cell(quality, on_packets=True) for quality in ('none', 'unknown')]
    found = list(hint_packets.run(todo, tmp_path, SHOWN))
    assert found == [(todo[0], [1.0], 0.0), (todo[1], [2.0], 0.0)]
    (none, hosts, fair), (unknown, same_hosts, order) = bed.sent
    assert hosts == same_hosts == _case().hosts
    assert fair.order == 'fair' and order.order == 'mrtf'
    assert fair.ceil == order.ceil == 'link'
    assert {one.late_s for one in none} == {claims.NEVER_S}
    assert not any(one.is_sized for one in unknown)
    assert bed.slots == [sum(one.coflow.n_vms for one in _case().coflows)]


def test_datagrams_are_sent_beside_foreign_udp_alone(bed, tmp_path):
    qualities = ('none', 'none-udp', 'foreign-udp', 'foreign-tcp')
    list(hint_packets.run([_cell(quality, on_packets=True)
                           for quality in qualities], tmp_path, SHOWN))
    assert [beside is not None for beside in bed.beside] == [
        False, True, True, False]
    assert [scheme.order for _, _, scheme in bed.sent] == [
        'fair', 'fair', 'mrtf', 'mrtf']


def test_options_have_a_controller_of_their_own(bed, tmp_path):
    list(hint_packets.run([_cell(), _cell(options=(('theta_s', '3'),))],
                          tmp_path, SHOWN))
    assert bed.controllers == [{'scheduler': {}},
                               {'scheduler': {'theta_s': '3'}}]


def test_a_disturbed_run_is_made_again(bed, tmp_path):
    bed.waited = iter((0.9, 0.1, 0.5, 0.4, 0.6))
    found = list(hint_packets.run([_cell(), _cell('half')], tmp_path, SHOWN))
    assert [(ccts_s, waited) for _, ccts_s, waited in found] == [
        ([2.0], 0.1), ([4.0], 0.4)]
