# SPDX-License-Identifier: Apache-2.0

"""A disk that is full: below an embedded database, and below MariaDB."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

import pytest
import requests

from tests import databases as real_databases
from tests import patience
from tests.functional.controller import harness

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='mounts a tmpfs')

DEADLINE_S = 5
LATE_S = 1


@pytest.fixture
def small():
    """A file system of 24 MB, where a database's own user finds it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='virtco-'))
    path.chmod(0o755)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', path],
                   check=True)
    yield path
    subprocess.run(['umount', '-l', path], check=True)
    path.rmdir()


def fill(directory):
    """Leave no byte; the file that takes them."""
    path = directory / 'full'
    with path.open('wb', buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b'x' * 65536)
    with path.open('ab', buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b'x')
    return path


def launch(tenant, number):
    body = harness.placement(number, f'g{number}', n_hosts=8, slots=100,
                             project_id='p')
    watch = patience.Answer()
    answer = requests.put(
        f'{tenant.controller.url}/v1/placements/{tenant.instance(number)}',
        json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()['status'], watch.seconds()


@pytest.mark.parametrize('what', ['database', 'all'])
def test_of_an_embedded_database(small, tmp_path, what):
    """Also where the log and the state are on it."""
    home = small if what == 'all' else tmp_path
    controller = harness.ControllerProcess(home, {
        'database': {'connection': f'sqlite:///{small}/virtco.sqlite'},
        'placement': {'deadline_s': DEADLINE_S, 'budget_s': 0.05}})
    try:
        _survive(controller.start(), small, lambda: None)
    finally:
        controller.stop(9)


@pytest.mark.full(reason='starts a server of its own',
                  still='the full disk below SQLite')
def test_of_mariadb(small, tmp_path):
    """Its server waits for room, and begins anew when it gave up."""
    kind = real_databases.SERVERS['mariadb']
    if kind.is_missing():
        pytest.skip('Debian package mariadb-server is missing')
    subprocess.run(['mount', '-o', 'remount,size=160m', small], check=True)
    server = kind(small / 'mariadb')
    controller = None

    def restart():
        if server.process.poll() is not None:
            server.start()

    try:
        server.start()
        url = server.create_database('virtco')
        from virtco.db import migration
        from virtco.db import session as db_session
        database = db_session.Database(url, 5)
        migration.upgrade(database)
        database.dispose()
        controller = harness.ControllerProcess(tmp_path, {
            'database': {'connection': url},
            'placement': {'deadline_s': DEADLINE_S, 'budget_s': 0.05}})
        _survive(controller.start(), small, restart)
    finally:
        if controller is not None:
            controller.stop(9)
        server.kill()


def _survive(controller, directory, restart):
    tenant = controller.tenant()
    assert launch(tenant, 0)[0] == 'planned'
    edge = harness.Edge(tenant, 'h0')
    edge.report()
    patience.wait_for(edge.policy, 'a policy')
    filler = fill(directory)
    answers = [launch(tenant, number) for number in range(1, 9)]
    assert controller.process.poll() is None, controller.log_text()
    # What hosts are told needs no disk.
    edge.link_bps = 2e8
    with contextlib.suppress(AssertionError):
        edge.report()
    assert edge.policy() is not None
    filler.unlink()
    restart()
    numbers = iter(range(10, 10_000))
    watch = patience.Answer()
    patience.wait_for(lambda: launch(tenant, next(numbers))[0] == 'planned',
                      'a plan')
    again_s = watch.seconds()
    n_neutral = sum(status == 'neutral' for status, _ in answers)
    slowest_s = max(took_s for _, took_s in answers)
    print(f'{len(answers)} launches on a full disk: {n_neutral} neutral, the '
          f'slowest answer took {slowest_s:.2f} s; planned again after '
          f'{again_s:.1f} s')
    assert n_neutral > 0
    assert slowest_s < DEADLINE_S + LATE_S
    # What was answered before is there, and nothing of what was not.
    assert tenant.stored(0)['status'] == 'planned'
    for number, (status, _) in enumerate(answers, 1):
        found = requests.get(
            f'{controller.url}/v1/placements/{tenant.instance(number)}',
            timeout=60)
        if status == 'planned':
            assert found.json()['status'] == 'planned'
        elif found.status_code == 200:
            assert found.json()['status'] == 'neutral'
