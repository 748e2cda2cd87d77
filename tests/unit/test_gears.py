# SPDX-License-Identifier: Apache-2.0

"""The gears of the tests: what runs when, and what fails a run."""

import pytest

from tests.gears import __main__ as command
from tests.gears import tiers

pytest_plugins = ['pytester']
TEST = '''
import pytest


def test_always():
    pass


@pytest.mark.full(reason='slow', still='test_always')
def test_in_full():
    pass
'''


@pytest.fixture
def tier(monkeypatch):
    """Makes a tier of commands, which main() runs by its name."""
    def make(*commands, **changes):
        monkeypatch.setitem(tiers.TIERS, 'made', tiers.Tier(
            commands, **changes))
    return make


def test_the_default_gear_is_what_ci_runs():
    assert tiers.default() == ['style', 'unit', 'mutants', 'functional',
                               'faults', 'netns']
    assert all(tiers.TIERS[name].budget_cpu_s for name in tiers.default())


def test_each_tier_is_in_one_part():
    found = [name for part in range(1, tiers.N_PARTS + 1)
             for name in tiers.of_part(part)]
    assert sorted(found) == sorted(tiers.TIERS)


@pytest.mark.parametrize('words, names, is_full', [
    ([], tiers.default(), False), (['unit', 'style'], ['unit', 'style'],
                                   False),
    (['full', '2'], tiers.of_part(2), True), (['full', 'unit'], ['unit'],
                                              True)])
def test_what_is_chosen(words, names, is_full):
    assert command._chosen(words) == (names, is_full)


def test_the_full_gear_has_every_tier():
    assert sorted(command._chosen(['full'])[0]) == sorted(tiers.TIERS)


@pytest.mark.parametrize('words, why', [
    (['none'], 'unknown tier none, known are style'),
    (['full', '9'], 'full 9: expected a tier or a part from 1 to 3')])
def test_what_names_nothing(words, why, capsys):
    with pytest.raises(SystemExit):
        command.main(words)
    assert why in capsys.readouterr().err


def test_a_command_that_fails_fails_the_run(tier, capfd):
    tier(('true',), ('false',), ('echo', 'last'))
    assert command.main(['made']) == 1
    found = capfd.readouterr()
    assert found.err == 'FAILED: false\n'
    assert '\nlast\n' in found.out


@pytest.mark.parametrize('budget_cpu_s, code', [(0.0, 1), (60.0, 0)])
def test_cpu_time_beyond_the_budget_fails_the_run(tier, budget_cpu_s, code,
                                                  capfd):
    tier(('python', '-c', 'sum(range(10 ** 6))'), budget_cpu_s=budget_cpu_s)
    assert command.main(['made']) == code
    assert ('its budget is 0' in capfd.readouterr().err) == bool(code)


def test_the_full_gear_has_no_budget(tier):
    tier(('python', '-c', 'sum(range(10 ** 6))'), budget_cpu_s=0.0)
    assert not command.run(
        'made', True, command.environment(True)).is_over_budget


def test_commands_beside_each_other_fail_alone(tier, capfd):
    tier(('false',), ('true',), is_together=True)
    assert command.main(['made']) == 1
    assert capfd.readouterr().err == 'FAILED: false\n'


@pytest.mark.parametrize('gear, changed, passed', [
    ('default', '', 1), ('default', 'virtco/db/session.py', 2),
    ('default', 'virtco/units.py', 1), ('full', '', 2),
    ('default', 'tests/faults/test_a.py', 2)])
def test_a_test_marked_full(pytester, monkeypatch, gear, changed, passed):
    monkeypatch.setenv('VIRTCO_TEST_GEAR', gear)
    monkeypatch.setenv('VIRTCO_TEST_CHANGED', changed)
    result = _run(pytester, TEST)
    assert result.parseoutcomes().get('passed') == passed
    assert result.parseoutcomes().get('deselected', 0) == 2 - passed


def test_a_test_marked_full_says_what_is_left(pytester, monkeypatch):
    monkeypatch.setenv('VIRTCO_TEST_GEAR', 'default')
    result = _run(pytester, TEST.replace(", still='test_always'", ''))
    result.stderr.fnmatch_lines(['*test_in_full: full needs a reason*'])


def _run(pytester, text, *args):
    """Run a test of the tier faults under the conftest of all tests."""
    conftest = tiers.__file__.replace('gears/tiers.py', 'conftest.py')
    with open(conftest) as source:
        pytester.makefile('.py', **{'tests/conftest': source.read()})
    pytester.makefile('.py', **{'tests/faults/test_a': text})
    return pytester.runpytest_inprocess('-p', 'no:cacheprovider', *args)


def test_what_is_left_out_is_listed(pytester, monkeypatch):
    monkeypatch.setenv('VIRTCO_TEST_GEAR', 'default')
    result = _run(pytester, TEST, '--list-full')
    result.stdout.fnmatch_lines([
        '*/test_a?py::test_in_full: slow; still: test_always'])
    assert 'passed' not in result.parseoutcomes()
