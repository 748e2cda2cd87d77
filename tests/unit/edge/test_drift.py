# SPDX-License-Identifier: Apache-2.0

"""A line for each difference between what stands and what should."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module import show
from edge_module.classify import classified as base
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan

TREE = shape.build_tree(test_tcplan.policy(
    [test_tcplan.coflow(0x10, 40e6, (3.0, 1.0))]), test_tcplan.LINK_BPS)
KEY, OTHER = (base.Key('tap1', '10.0.0.1', f'10.0.0.{n}') for n in (2, 3))
TABLE = base.Table(frozenset({('tap1', 5)}), {KEY: 0x11}, {0x11: 0x8010},
                   {('tap1', 'fa:16:3e:00:00:03'): 0xc106}, {'tap1': 0xc006})


@pytest.mark.parametrize('found', [
    show.Drift(classes=('c',)), show.Drift(entries=('e',)),
    show.Drift(conflict='x')])
def test_any_difference_is_one(found):
    assert found and not show.Drift()


@given(st.sets(st.sampled_from(sorted(TREE))),
       st.sets(st.sampled_from([0x11, 0x12])))
def test_classes(missing, slow):
    have = {minor: dataclasses.replace(item, rate_bps=item.rate_bps - 8)
            if minor in slow else item for minor, item in TREE.items()
            if minor not in missing}
    found = show.between(have, TREE, TABLE, TABLE)
    assert not found.entries and found.conflict is None
    assert sorted(line.partition(' HtbClass')[0] for line in found.classes
                  ) == sorted(
        [f'missing class {minor:#x}' for minor in missing]
        + [f'class {minor:#x} should be' for minor in slow - missing])
    surplus = show.between(TREE, have, TABLE, TABLE).classes
    assert {line for line in surplus if line.startswith('surplus')} >= {
        f'surplus class {minor:#x}' for minor in missing}


@pytest.mark.parametrize('have, line', [
    ({'hooks': frozenset()}, 'port tap1 is not classified'),
    ({'hooks': frozenset({('tap1', 5), ('tap2', 6)})},
     'port tap2 is classified without need'),
    ({'entries': {}}, f'{KEY}: None instead of 17'),
    ({'entries': {KEY: 0x12}}, f'{KEY}: 18 instead of 17'),
    ({'entries': {KEY: 0x11, OTHER: 0x12}}, f'{OTHER}: 18 instead of None'),
    ({'control': {}},
     'control packets of class 0x11: None instead of 32784'),
    ({'control': {0x11: 0x8010, 0x12: 0x8020}},
     'control packets of class 0x12: 32800 instead of None'),
    ({'limits': {}}, "what ('tap1', 'fa:16:3e:00:00:03') sends unmanaged is "
     'in another class'),
    ({'others': {'tap1': 0xc007}},
     'what tap1 sends unmanaged is in another class'),
    ({'others': {'tap1': 0xc006, 'tap2': 0xc007}},
     'what tap2 sends unmanaged is in another class')])
def test_entries(have, line):
    found = show.between(TREE, TREE, dataclasses.replace(TABLE, **have),
                          TABLE)
    assert found.entries == (line,) and not found.classes
