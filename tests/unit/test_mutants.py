# SPDX-License-Identifier: Apache-2.0

"""The mutation of modules itself."""

import ast

import pytest

from tests.gears import changes
from tests.mutation import __main__ as command
from tests.mutation import areas
from tests.mutation import collected as judges
from tests.mutation import mutants

TEXT = '''
"""A module."""
LIMIT = 3


def least(values, floor: int = 0) -> float:
    """Not 1 < 2."""
    LOG.debug('%d', 1 + 1)
    if not values:
        raise ValueError('none of 5')
    return min(floor, sum(values) / 2)
'''


def test_each_kind_of_change_is_made_and_nothing_else():
    found = {(one.where, one.before, one.after)
             for one in mutants.find('x.py', TEXT)}
    assert found == {
        ('<module>', '3', '4'), ('least', '0', '1'),
        ('least', 'not values', 'values'),
        ('least', "raise ValueError('none of 5')", 'pass'),
        ('least', 'min', 'max'),
        ('least', 'sum(values) / 2', 'sum(values) * 2'),
        ('least', '2', '3')}


def test_only_wanted_lines_change():
    assert [one.before for one in mutants.find('x.py', TEXT, {3})] == ['3']


@pytest.mark.parametrize('mutant', mutants.find('x.py', TEXT),
                         ids=lambda one: one.after)
def test_one_change_is_built_at_its_place(mutant):
    lines = ast.unparse(ast.parse(TEXT)).splitlines()
    changed = ast.unparse(mutants.build(TEXT, mutant.number)).splitlines()
    differing = [(a, b) for a, b in zip(lines, changed) if a != b]
    (before, after), = differing
    assert after == before.replace(mutant.before, mutant.after, 1)


def test_moved_lines_are_left_out():
    diff = '''+++ b/virtco/a.py
@@ -1,0 +5,2 @@
+    moved = 1
+    new = 1
+++ b/virtco/b.py
@@ -7 +6,0 @@
-        moved = 1
@@ -9 +8 @@
-old = 1
+newer = 2
'''
    assert changes.lines(diff) == {'virtco/a.py': {6}, 'virtco/b.py': {8}}


def test_tests_of_a_module_come_before_those_of_its_area():
    found = areas.tests('virtco/scheduling/starvation.py')
    assert found[0] == 'tests/unit/scheduling/test_starvation.py'
    assert 'tests/unit/scheduling/test_pilots.py' in found


def test_a_module_of_each_area_has_tests():
    for path in ('virtco/units.py', 'edge_module/agent.py',
                 'edge_module/probe/train_sender.py', 'virtco/state/debts.py',
                 'lab/virtco_lab/sim/traces.py', 'nova_filters/request.py'):
        assert (areas.ROOT / path).exists()
        assert areas.tests(path)


def test_a_generator_that_is_deleted_is_judged_by_its_function():
    """Another one of the function, which tests do not reach, is no part."""
    path = 'edge_module/privileged/operations.py'
    text = (areas.ROOT / path).read_text()
    loop = judges._Loop([one for one in mutants.find(path, text)
                         if one.after == 'pass' and ' for ' in one.before],
                        1.0, 1.0, 1, None)
    for one in loop._chosen:
        (_, _, name), _ = loop._code(one)
        assert name == one.where


def test_each_equivalent_mutant_exists_and_stands_in_the_file_of_its_area():
    for file in command.EQUIVALENT.glob('*.txt'):
        lines = file.read_text().splitlines()
        assert lines == sorted(set(lines)), file.name
        for path in {line.partition(' | ')[0] for line in lines}:
            name = areas.area(path).removesuffix('.py').replace('/', '-')
            assert file.stem == name
            keys = {one.key for one in mutants.find(
                path, (areas.ROOT / path).read_text())}
            assert not [line for line in lines if line.startswith(path)
                        and line.rpartition(' | ')[0] not in keys], path
