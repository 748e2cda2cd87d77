# SPDX-License-Identifier: Apache-2.0

"""By which power costs grow."""

import pytest

from benchmarks import growth


def test_slopes_are_exponents(tmp_path):
    found = [{'hosts': hosts, 'coflows': coflows, 'neutral': 0.0,
              **dict.fromkeys(growth.COLUMNS, hosts * (1 + coflows) ** 2.0)}
             for hosts, coflows in (
                 *((n, growth.AT_COFLOWS) for n in growth.HOSTS),
                 *((growth.AT_HOSTS, n) for n in growth.COFLOWS
                   if n != growth.AT_COFLOWS))]
    (_, over_hosts), (_, over_coflows) = growth.series(found, 'cpu')
    assert growth.slopes(over_hosts) == pytest.approx([1, 1, 1])
    assert growth.slopes(over_coflows) == pytest.approx([2, 2], abs=0.02)
    assert 'slope of beyond the solve over hosts: 1.00' in growth.report(
        found)
    text = growth.report(found)
    assert 'over hosts: 1.00, 1.00, 1.00; overall 1.00\n' in text
    assert 'overall 1.99 MORE THAN LINEAR' in text
    growth.write(found, tmp_path / 'a.csv')
    assert (tmp_path / 'a.csv').read_text().splitlines()[0].startswith(
        'hosts,coflows,neutral,')
    growth.plot(found, tmp_path / 'a.svg')
    assert (tmp_path / 'a.svg').stat().st_size > 1000
