# SPDX-License-Identifier: Apache-2.0

"""Mutants are judged by tests, in processes of their own: this one has loaded
the product.
"""

import json
import subprocess
import sys

import pytest

from tests.mutation import __main__ as command
from tests.mutation import areas
from tests.mutation import mutants
from virtco.solver.moves import rank_kernel

pytestmark = pytest.mark.full(
    reason='each process loads the product',
    still='the tier of mutants, which judges the lines of each change so')


JUDGED = """
import hypothesis
from tests.mutation import areas
from tests.mutation import mutants
from tests.mutation import run
areas.tests = lambda path: [{test!r}]
run.IDLE_S = {idle_s}
hypothesis.settings.register_profile('virtco')
text = (areas.ROOT / {path!r}).read_text()
mutant = next(one for one in mutants.find({path!r}, text) if {chosen})
outcome, = run.judge([run.Task({path!r}, mutant)], 20, 20, 1)
print(outcome.verdict.value)
"""


def judged(test, text, path='virtco/units.py', chosen='True', idle_s=20.0):
    """Return the verdict of a test, a file with this text, on a mutant.

    :param chosen: an expression of the mutant, ``one``.
    """
    test.write_text(text)
    done = subprocess.run(
        [sys.executable, '-c', JUDGED.format(
            test=str(test), path=path, chosen=chosen, idle_s=idle_s)],
        cwd=areas.ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_mutant_replaces_a_module_below_a_folder_of_tools(tmp_path):
    assert judged(tmp_path / 'test_constant.py', '''
from virtco_tenant.cast import peers
def test_it():
    assert peers.MAX_GATES == 32
''', 'tenant/virtco_tenant/cast/peers.py', 'one.before == "32"') == 'killed'


def test_a_module_that_the_judge_imports_itself_is_replaced_too():
    path = 'virtco/compiled.py'
    number = next(one.number for one in mutants.find(
        path, (areas.ROOT / path).read_text())
        if one.where == 'plain' and one.before == '1')
    done = subprocess.run(
        [sys.executable, '-c', 'from tests.mutation import mutants, run\n'
         f'one = mutants.Mutant({path!r}, "plain", 1, "", "", {number})\n'
         'run.load_libraries()\n'
         f'print(*(found.verdict.value for found in run.judge('
         f'[run.Task({path!r}, one)], 20, 1e9, 1)))'],
        capture_output=True, text=True, cwd=areas.ROOT, timeout=300)
    assert done.stdout == 'killed\n', done.stderr


def test_a_mutant_that_conftest_cannot_load_is_noticed(tmp_path):
    (tmp_path / 'conftest.py').write_text('raise ValueError\n')
    assert judged(tmp_path / 'test_nothing.py',
                  'def test_it():\n    pass\n') == 'killed'


def test_tests_that_sleep_are_ended(tmp_path):
    assert judged(tmp_path / 'test_sleeping.py', '''
import time
def test_it():
    time.sleep(60)
''', idle_s=0.5) == 'timed out'


@pytest.mark.parametrize('expected, verdict', [
    ('3.0', 'killed'), ('own_s(compiled.plain(rank_kernel.__name__))',
                        'survived')])
def test_a_mutant_of_a_kernel_is_in_its_plain_self_too(
        tmp_path, expected, verdict):
    """Their equality tells nothing."""
    assert judged(tmp_path / 'test_kernel.py', f'''
import numpy as np
from virtco import compiled
from virtco.solver.moves import rank_kernel
def own_s(kernel):
    found, port = np.zeros((1, 2)), np.zeros(1, np.int64)
    kernel.own_times(
        0, 1, 1, np.array([3.0]), np.zeros((1, 1), np.int64),
        np.ones((1, 1, 1)), np.full((1, 2, 2), -1), np.zeros((1, 2, 2)),
        found, port)
    return found[0, 1]
def test_it():
    assert rank_kernel.__file__ != {rank_kernel.__file__!r}
    compiled.check()
    assert own_s(rank_kernel) == {expected}
''', 'virtco/solver/moves/rank_kernel.py',
        '(one.where, one.after) == ("own_times", "p <= 0")') == verdict


COLLECTED = """
import hypothesis
from tests.mutation import areas
from tests.mutation import collected
from tests.mutation import mutants
areas.tests = lambda path: [{test!r}]
hypothesis.settings.register_profile('virtco')
path = 'virtco/units.py'
found = set()
for one, verdict, cpu_s in collected.judge(
        mutants.find(path, (areas.ROOT / path).read_text()), 20, 100, 2):
    found.add(f'{{one.where}} {{verdict and verdict.value}}')
print(*found, sep='\\n')
"""


def collected(folder, text):
    """Judge all mutants by one test that is collected once."""
    test = folder / 'test_some.py'
    test.write_text(text)
    done = subprocess.run(
        [sys.executable, '-c', COLLECTED.format(test=str(test))],
        cwd=areas.ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.fixture(scope='module')
def of_units(tmp_path_factory):
    return collected(tmp_path_factory.mktemp('units'), """
from virtco import units
CASES = units.parse_rate_bps('1kbit')
def test_some():
    assert units.ms_to_s(5.0) == 0.005
def test_what_is_not_asserted():
    units.bytes_per_s_to_bps(2.0)
""")


@pytest.mark.parametrize('function, verdict', [
    # Asserted, executed, never executed.
    ('ms_to_s', 'killed'), ('bytes_per_s_to_bps', 'survived'),
    ('transfer_time_s', 'survived'),
    # Executed while the tests are imported: another judge must see them.
    ('parse_rate_bps', 'None'), ('<module>', 'None')])
def test_tests_judge_what_they_execute(of_units, function, verdict):
    assert {one for one in of_units if one.split()[0] == function} == {
        f'{function} {verdict}'}


def test_a_module_that_one_test_imports_is_left_to_another_judge(tmp_path):
    """No function of it is there when mutants are put in."""
    found = collected(tmp_path, """
def test_some():
    from virtco import units
    assert units.ms_to_s(5.0) == 0.005
""")
    assert 'ms_to_s None' in found and 'ms_to_s survived' not in found


def test_a_mutant_that_is_noticed_is_recorded_once(tmp_path):
    record = tmp_path / 'record'
    text = (areas.ROOT / 'virtco/units.py').read_text()
    done = subprocess.run(
        [sys.executable, '-m', 'tests.mutation', '--module',
         'virtco/units.py', '--sample', '1', '--jobs', '1', '--record',
         record], cwd=areas.ROOT, capture_output=True, text=True, check=True)
    verdict, = map(json.loads, record.read_text().splitlines())
    assert verdict['verdict'] == 'killed', done.stdout
    assert verdict['area'] == 'virtco/units.py'
    assert '1 of 1 mutants noticed (100 %)' in done.stdout
    assert (areas.ROOT / 'virtco/units.py').read_text() == text
    again = command.main(['--module', 'virtco/units.py', '--sample', '1',
                          '--record', str(record), '--least', '100'])
    assert again == 0
    assert len(record.read_text().splitlines()) == 1


def test_mutants_are_not_judged_by_tests_that_fail_without_one(tmp_path):
    """Each would count as noticed."""
    failing = tmp_path / 'test_failing.py'
    failing.write_text('def test_it():\n    assert False\n')
    done = subprocess.run(
        [sys.executable, '-c', f'''
import sys
from tests.mutation import __main__ as command
from tests.mutation import areas
areas.tests = lambda path: [{str(failing)!r}]
sys.exit(command.main(
    ['--module', 'virtco/units.py', '--sample', '1', '--jobs', '1']))
'''], cwd=areas.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(
        'virtco/units.py: not judged, its tests fail without a mutant\n'
        '0 of 0 mutants noticed'), done.stdout
