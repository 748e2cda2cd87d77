# SPDX-License-Identifier: Apache-2.0

"""The counterexamples refute what the papers print."""

import dataclasses
import json

import pytest

from virtco_lab.cmd import sim as command
from virtco_lab.sim import errata


def test_every_counterexample_holds(capsys):
    assert command.main(['errata', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 11 and all(one['holds'] for one in found)
    by_found = [one['found'] for one in found]
    assert 'HiGHS: unbounded' in by_found
    assert 'as printed 3 s, both coflows together 2.5 s' in by_found


def test_what_the_counterexamples_find():
    assert [one.found for one in errata.check()] == [
        'HiGHS: unbounded',
        'relaxation 0 s, best placement 2 s',
        'rounding 12 s, best placement 5 s: 2.4 times',
        'rounding 17 s, best placement 8 s: 2.125 times',
        'best placement 0 s, the worst 2 s',
        'as printed 3 s, both coflows together 2.5 s',
        'PAGER-1M: 0.45 GB printed, 0.411 GB at most; RECOMM-2G: 3.78 GB '
        'printed, 2.5 GB at most; RECOMM-5G: 4.21 GB printed, 3.11 GB at most',
        '3 VMs on some server',
        '150.4 Gbit/s in a fabric of 18 Gbit/s',
        '28.6 %',
        "SEBF-TA would take 1.10 of Baseline's time"]


@pytest.mark.parametrize('small, solve, rounded_s, best_s', [
    (errata.LINKED, errata.linked, 12, 5),
    (errata.PRODUCTS, errata.with_products, 17, 8)])
def test_rounding_is_more_than_twice_the_optimum(small, solve, rounded_s,
                                                 best_s):
    least_s, places = solve(small)
    assert places in set(small.placements())
    assert small.cct_s(places) == rounded_s
    # A relaxation is below the optimum, else the program is a wrong one.
    assert least_s <= small.least_s() == best_s


def test_a_relaxation_counts_what_a_host_receives():
    both = errata._Small((1, 1, 1), 3, ((0, 2, 4.0), (1, 2, 4.0)), {2: 0})
    for solve in (errata.linked, errata.with_products):
        assert solve(both)[0] == pytest.approx(8.0)


def test_an_example_that_refutes_nothing_fails(monkeypatch, capsys):
    monkeypatch.setattr(errata, 'LINKED', errata.FIG_1_C1)
    assert command.main(['errata']) == 1


def test_what_is_as_printed_is_no_error(monkeypatch):
    """Examples at which the statements just hold."""
    twice = errata._Small((2, 1), 3, ((0, 1, 2.0), (1, 2, 4.0)))
    assert (twice.least_s(), twice.cct_s((0, 0, 1))) == (2.0, 4.0)
    assert not errata._ratio(twice, lambda _: (0.0, (0, 0, 1)), '', '').holds
    one = dataclasses.replace(errata.workloads.TABLE2[0], width=18)
    monkeypatch.setattr(errata.workloads, 'TABLE2', [one])
    monkeypatch.setattr(errata, 'TWO_PAIRS', errata._Small(
        (2,), 2, ((0, 1, 1.0),)))
    for example in (errata._co_residence, errata._no_ratio, errata._skew):
        assert not example().holds


def test_most_skew_is_that_of_the_most_unequal_flows():
    row = errata.workloads.TABLE2[4]
    size, length = row.size_bytes / 1e9, row.length_bytes / 1e9
    flows = [length, size - length] + [0.0] * (row.width - 2)
    deviation = (sum(x * x for x in flows) / row.width
                 - (size / row.width) ** 2) ** 0.5
    assert deviation <= errata.most_skew_gb(row) < 1.03 * deviation
