# SPDX-License-Identifier: Apache-2.0

"""The counterexamples refute what the papers print."""

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


def test_an_example_that_refutes_nothing_fails(monkeypatch, capsys):
    monkeypatch.setattr(errata, 'LINKED', errata.FIG_1_C1)
    assert command.main(['errata']) == 1


def test_most_skew_is_that_of_the_most_unequal_flows():
    row = errata.workloads.TABLE2[4]
    size, length = row.size_bytes / 1e9, row.length_bytes / 1e9
    flows = [length, size - length] + [0.0] * (row.width - 2)
    deviation = (sum(x * x for x in flows) / row.width
                 - (size / row.width) ** 2) ** 0.5
    assert deviation <= errata.most_skew_gb(row) < 1.03 * deviation
