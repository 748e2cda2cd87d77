# SPDX-License-Identifier: Apache-2.0

"""The gears of the tests: what runs when, and what fails a run."""

import pathlib
import tempfile

from hypothesis import given
from hypothesis import strategies
import pytest

from tests.gears import __main__ as command
from tests.gears import changes
from tests.gears import parts
from tests.gears import stolen
from tests.gears import tiers
from tests.gears import yardstick

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
def tier(monkeypatch, tmp_path):
    """Makes a tier of commands, which main() runs by its name."""
    (tmp_path / 'kept').mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'kept'))
    monkeypatch.setattr(yardstick, 'slowness', lambda: 2.0)

    def make(*commands, **changes):
        monkeypatch.setitem(tiers.TIERS, 'made', tiers.Tier(
            commands, **changes))
    return make


def test_the_default_gear_is_what_ci_runs():
    assert tiers.default() == ['functional', 'faults', 'style', 'mutants',
                               'netns', 'unit']
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
    (['none'], 'unknown tier none, known are functional'),
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


def test_a_slow_machine_has_larger_budgets(tier, capfd):
    tier(('true',), budget_cpu_s=30.0)
    assert command.main(['made']) == 0
    found = capfd.readouterr().out
    assert ' of 60 ' in found and '2.00 x as slow as' in found


def test_what_is_stolen():
    before, after = stolen.times(), stolen.times()
    assert all(late >= early for early, late in zip(before, after))
    assert stolen.share([10] * 8, [20] * 8) == 1 / 8
    assert stolen.share([1] * 8, [1] * 8) == 0
    assert stolen.share([0] * 8, [9, 0, 0, 0, 0, 0, 0, 1]) == 0.1


def test_slowness_is_measured():
    # Of whatever machine this is.
    assert 0.1 < yardstick.slowness() < 10


def test_the_full_gear_has_no_budget(tier):
    tier(('python', '-c', 'sum(range(10 ** 6))'), budget_cpu_s=0.0)
    found, = command.run(['made'], True, command.environment(True))
    assert found.cpu_s and not found.is_over_budget


def test_commands_run_beside_each_other(tier, tmp_path):
    meet = 'mkdir {0}; until test -d {1}; do sleep 0.01; done'
    tier(*(('timeout', '20', 'sh', '-c', meet.format(*names))
           for names in ((tmp_path / 'a', tmp_path / 'b'),
                         (tmp_path / 'b', tmp_path / 'a'))))
    assert command.main(['made']) == 0


def test_what_has_to_be_alone_runs_last(tier, tmp_path):
    tier(('sh', '-c', f'sleep 0.2; mkdir {tmp_path}/a'),
         alone=(('rmdir', f'{tmp_path}/a'),))
    assert command.main(['made']) == 0


def test_the_slowest_tests_are_told(tier, tmp_path, capfd):
    file = tmp_path / 'test_a.py'
    file.write_text('import time\n'
                    'def test_long(): time.sleep(0.5)\n'
                    + ''.join(f'def test_{n}(): pass\n' for n in range(12)))
    tier((*tiers.PYTEST, f'--rootdir={tmp_path}', str(file)))
    assert command.main(['made']) == 0
    _, _, told = capfd.readouterr().out.partition(
        '=== slowest of made: seconds and test\n')
    told = told.partition('===')[0].splitlines()
    assert len(told) == 10
    assert told[0].endswith('test_a::test_long')
    assert float(told[0].split()[0]) >= 0.5


def test_files_of_tests_that_failed_stay(tier, tmp_path, capfd):
    for name, end in (('good', ''), ('bad', 'assert not path.exists()')):
        (tmp_path / f'test_{name}.py').write_text(
            f'def test_{name}(tmp_path):\n'
            "    path = tmp_path / 'log'\n"
            f"    path.write_text('{name}')\n"
            f'    {end}\n')
    tier(*((*tiers.PYTEST, f'--rootdir={tmp_path}', '-c',
            f'{changes.ROOT}/pyproject.toml',
            f'{tmp_path}/test_{name}.py') for name in ('good', 'bad')))
    assert command.main(['made']) == 1
    log, = (tmp_path / 'kept').rglob('log')
    assert log.read_text() == 'bad'
    _, _, told = capfd.readouterr().out.partition('its files stay in ')
    assert log.is_relative_to(told.splitlines()[0])


@given(sizes=strategies.lists(strategies.integers(1, 50), max_size=9),
       n_parts=strategies.integers(1, 6))
def test_each_file_is_in_one_part(sizes, n_parts):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number, size_bytes in enumerate(sizes):
            (folder / f'test_{number}.py').write_text('#' * size_bytes)
        found = [parts.files_of(f'{part}/{n_parts}', [folder])
                 for part in range(1, n_parts + 1)]
    files = [file for part in found for file in part]
    assert files == sorted(files)
    assert len(set(files)) == len(files) == len(sizes)
    most_bytes = sum(sizes) / n_parts + max(sizes, default=0)
    for part in found:
        assert sum(sizes[int(file.stem[5:])] for file in part) <= most_bytes


def test_files_that_have_commands_of_their_own_are_in_no_part(tmp_path):
    for name in ('own/test_a.py', 'owner/test_b.py', 'test_c.py'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('#')
    found = [parts.files_of(f'{part}/2', [tmp_path], [tmp_path / 'own'])
             for part in (1, 2)]
    assert found == [[tmp_path / 'owner/test_b.py'], [tmp_path / 'test_c.py']]


@pytest.mark.parametrize('folder, changed, passed', [
    ('unit/lab/sim', 'lab/virtco_lab/cases.py', 2),
    ('unit/laboratory', 'lab/virtco_lab/cases.py', 1),
    ('functional', 'virtco/db/session.py', 2),
    ('functional/nova', 'virtco/db/session.py', 1),
    ('functional/nova', 'nova_filters/request.py', 2)])
def test_the_innermost_folder_says_what_a_test_is_about(
        pytester, monkeypatch, folder, changed, passed):
    monkeypatch.setenv('VIRTCO_TEST_GEAR', 'default')
    monkeypatch.setenv('VIRTCO_TEST_CHANGED', changed)
    result = _run(pytester, TEST, folder=folder)
    assert result.parseoutcomes().get('passed') == passed


@pytest.mark.parametrize('part', ['0/2', '3/2', '1', 'a/2', '1/-1'])
def test_a_part_that_is_none(part, tmp_path):
    with pytest.raises(ValueError, match='expected K/N, K from 1 to N'):
        parts.files_of(part, [tmp_path])


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


def _run(pytester, text, *args, folder='faults'):
    """Run a test of a tier under the conftest of all tests."""
    conftest = tiers.__file__.replace('gears/tiers.py', 'conftest.py')
    with open(conftest) as source:
        pytester.makefile('.py', **{'tests/conftest': source.read()})
    pytester.makefile('.py', **{f'tests/{folder}/test_a': text})
    return pytester.runpytest_inprocess('-p', 'no:cacheprovider', *args)


def test_what_is_left_out_is_listed(pytester, monkeypatch):
    monkeypatch.setenv('VIRTCO_TEST_GEAR', 'default')
    result = _run(pytester, TEST, '--list-full')
    result.stdout.fnmatch_lines([
        '*/test_a?py::test_in_full: slow; still: test_always'])
    assert 'passed' not in result.parseoutcomes()
