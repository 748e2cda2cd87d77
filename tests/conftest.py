# SPDX-License-Identifier: Apache-2.0

"""What all tests share."""

import gc
import os
import pathlib

import hypothesis
import pytest

from tests import databases as real_databases
from tests import examples
from tests.gears import parts
from tests.gears import stolen

# Machines are noisy: examples that took long to make or to run are no failure.
hypothesis.settings.register_profile(
    'virtco', deadline=None, max_examples=examples.USUAL,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    # CI judges a change by the same examples each time; other runs explore.
    derandomize=bool(os.environ.get('CI')))
hypothesis.settings.load_profile('virtco')

# How often a test of a tier may be tried again if it is marked real_time: its
# rates and delays suffer when the machine stands still. What is broken is
# broken each time. No other test is tried again.
_RERUNS = {'netns': 3, 'kernel': 1, 'discovery': 1}
# Seconds before it is, twice as many each time: neighbours of a virtual
# machine may keep it busy for a minute.
_RERUN_DELAY_S = 2
_TIMES = pytest.StashKey[list[int]]()
# Tests marked full run in the default gear, too, where one of these files
# changed, or the test itself. Of directories within each other, the innermost
# counts.
_FULL_WHERE_CHANGED = {
    'netns': ('edge_module/', 'virtco/table/', 'virtco/measure/',
              'lab/virtco_lab/emulation/', 'examples/tutorial/'),
    'functional': ('virtco/db/', 'virtco/leadership/'),
    'functional/nova': ('nova_filters/', 'virtco/follow/', 'virtco/hint',
                        'virtco/wire/', 'lab/virtco_lab/emulation/nova_'),
    'faults': ('virtco/db/', 'virtco/leadership/'),
    'functional/devstack': ('devstack/',),
    'unit/lab': ('lab/virtco_lab/',),
    'unit/mutation': ('tests/mutation/',),
}
_PART = pytest.StashKey[frozenset[pathlib.Path]]()


@pytest.fixture(scope='session')
def databases():
    """Real database servers, which end with the tests of this process."""
    found = real_databases.Databases()
    yield found
    found.stop()


def pytest_addoption(parser):
    parser.addoption(
        '--list-full', action='store_true',
        help='print the tests that the default gear leaves out, and why')
    parser.addoption(
        '--part', metavar='K/N',
        help='collect the K-th of N parts of the files only')


def pytest_configure(config):
    if config.option.part:
        config.stash[_PART] = frozenset(parts.files_of(
            config.option.part,
            [config.invocation_params.dir / arg for arg in config.args],
            [config.invocation_params.dir / arg
             for arg in config.option.ignore or ()]))


def pytest_ignore_collect(collection_path, config):
    if _PART in config.stash and collection_path.is_file():
        return collection_path not in config.stash[_PART] or None
    return None


def pytest_collection_finish():
    # What was imported and collected lives on: no collection need look at it.
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config, items):
    here = pathlib.Path(__file__).parent
    _leave_to_the_full_gear(here, config, items)
    for item in items:
        if item.get_closest_marker('flaky') is not None:
            raise pytest.UsageError(
                f'{item.nodeid}: mark it real_time, with its reason')
        mark = item.get_closest_marker('real_time')
        if mark is None:
            continue
        tier = item.path.relative_to(here).parts[0]
        reason = mark.kwargs.get('reason')
        if tier not in _RERUNS or not reason:
            raise pytest.UsageError(
                f'{item.nodeid}: real_time needs a reason, and is for tests '
                f'of {" and ".join(_RERUNS)} only')
        item.add_marker(pytest.mark.flaky(
            reruns=_RERUNS[tier], reruns_delay=_RERUN_DELAY_S,
            reruns_delay_backoff_factor=2))
        item.user_properties.append(('real_time', reason))


def _leave_to_the_full_gear(here, config, items):
    """Deselect what is marked full, unless this run is for it."""
    if os.environ.get('VIRTCO_TEST_GEAR') == 'full':
        return
    changed = os.environ.get('VIRTCO_TEST_CHANGED', '').split(os.pathsep)
    if config.option.list_full:
        changed = []
    left = []
    for item in items:
        mark = item.get_closest_marker('full')
        if mark is None:
            continue
        if not mark.kwargs.get('reason') or not mark.kwargs.get('still'):
            raise pytest.UsageError(
                f'{item.nodeid}: full needs a reason, and still: what the '
                'default gear catches its faults with')
        path = item.path.relative_to(here)
        causes = (*next((_FULL_WHERE_CHANGED[folder.as_posix()]
                         for folder in path.parents
                         if folder.as_posix() in _FULL_WHERE_CHANGED), ()),
                  f'tests/{path.as_posix()}')
        if not any(name.startswith(causes) for name in changed):
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]
    if config.option.list_full:
        for item in left:
            mark = item.get_closest_marker('full')
            print(f'{item.nodeid}: {mark.kwargs["reason"]}; still: '
                  f'{mark.kwargs["still"]}')
        items.clear()


def pytest_runtest_call(item):
    item.stash[_TIMES] = stolen.times()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip what the last try could not measure: the machine was not there."""
    report = (yield).get_result()
    tries = next((mark.kwargs['reruns'] + 1
                  for mark in item.iter_markers('flaky')), None)
    if (call.when != 'call' or not report.failed or tries is None
            or getattr(item, 'execution_count', tries) < tries):
        return
    part = stolen.share(item.stash[_TIMES], stolen.times())
    if part > stolen.MOST:
        report.outcome = 'skipped'
        report.longrepr = (str(item.path), item.location[1] or 0, (
            f'the hypervisor took {part:.0%} of the processors in the last '
            f'of {tries} tries: {call.excinfo.exconly()[:300]}'))


def pytest_terminal_summary(terminalreporter):
    """List each rerun: a test that needs many is a finding."""
    reruns = terminalreporter.stats.get('rerun', [])
    if not reruns:
        return
    terminalreporter.section(f'findings: {len(reruns)} reruns')
    for report in reruns:
        reason = dict(report.user_properties).get('real_time')
        crash = getattr(report.longrepr, 'reprcrash', None)
        why = crash.message.splitlines()[0] if crash else 'see above'
        terminalreporter.line(f'{report.nodeid} ({reason}): {why}')
