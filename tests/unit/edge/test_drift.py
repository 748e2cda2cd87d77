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
KEY, OTHER = (base.Entry(5, '10.0.0.1', f'10.0.0.{n}') for n in (2, 3))
SHOWN = '10.0.0.1 to 10.0.0.{} port 0 at tap1: '
CONTROL = {base.MapKey(5): 0x9005}
TO = {base.MapKey(5, 'fa:16:3e:00:00:03'): 0xc106}
PEER = {base.MapKey(0x11, 'fa:16:3e:00:00:04'): 0x11}
OTHERS = {base.MapKey(5): 0xc006}
TABLE = base.Table(frozenset({('tap1', 5)}), {KEY: 0x11}, {
    'control': CONTROL, 'to': TO, 'others': OTHERS, 'peer': PEER})


@given(st.sets(st.sampled_from(sorted(TREE))),
       st.sets(st.sampled_from([0x11, 0x12])))
def test_classes(missing, slow):
    have = {minor: dataclasses.replace(item, rate_bps=item.rate_bps - 8)
            if minor in slow else item for minor, item in TREE.items()
            if minor not in missing}
    assert sorted(line.partition(' HtbClass')[0]
                  for line in show.class_lines(have, TREE)) == sorted(
        [f'missing class {minor:#x}' for minor in missing]
        + [f'class {minor:#x} should be' for minor in slow - missing])
    assert {line for line in show.class_lines(TREE, have)
            if line.startswith('surplus')} >= {
        f'surplus class {minor:#x}' for minor in missing}


@pytest.mark.parametrize('have, line', [
    ({'hooks': frozenset()}, 'port tap1 is not classified'),
    ({'hooks': frozenset({('tap1', 5), ('tap2', 6)})},
     'port tap2 is classified without need'),
    ({'entries': {}}, SHOWN.format(2) + 'None instead of 17'),
    ({'entries': {KEY: 0x12}}, SHOWN.format(2) + '18 instead of 17'),
    ({'entries': {KEY: 0x11, OTHER: 0x12}},
     SHOWN.format(3) + '18 instead of None'),
    ({'entries': {KEY: 0x11, OTHER._replace(ifindex=0): 0x12}},
     '10.0.0.1 to 10.0.0.3 port 0 at (0): 18 instead of None'),
    ({'maps': {'to': TO, 'others': OTHERS, 'peer': PEER}},
     'control packets of tap1 are in another class'),
    ({'maps': {**TABLE.maps, 'control': CONTROL | {base.MapKey(9): 0x9009}}},
     'control packets of (9) are in another class'),
    ({'maps': {'control': CONTROL, 'others': OTHERS, 'peer': PEER}},
     'what tap1 sends unmanaged to fa:16:3e:00:00:03 is in another class'),
    ({'maps': {**TABLE.maps, 'others': {base.MapKey(5): 0xc007}}},
     'what tap1 sends unmanaged to others is in another class'),
    ({'maps': {**TABLE.maps, 'others': OTHERS | {base.MapKey(9): 0xc007}}},
     'what (9) sends unmanaged to others is in another class'),
    ({'maps': {**TABLE.maps, 'peer': PEER | {
        base.MapKey(0x12, 'fa:16:3e:00:00:05'): 0x12}}},
     'surplus receiver fa:16:3e:00:00:05 of class 0x12'),
    ({'maps': {**TABLE.maps, 'peer': {}}},
     'missing receiver fa:16:3e:00:00:04 of class 0x11')])
def test_entries(have, line):
    assert [*show.entry_lines(dataclasses.replace(TABLE, **have), TABLE)
            ] == [line]


def test_a_port_of_which_a_part_stands_has_its_name():
    want = base.Table(frozenset((f'tap{n}', n) for n in range(1, 20)), {
        KEY._replace(ifindex=n): 0x11 for n in range(1, 20)})
    have = base.Table(frozenset(('', n) for n in range(1, 20)))
    assert [line for line in show.entry_lines(have, want)
            if 'instead of' in line] == [
        f'10.0.0.1 to 10.0.0.2 port 0 at tap{n}: None instead of 17'
        for n in range(1, 20)]
