# SPDX-License-Identifier: Apache-2.0

"""A database that is slow to commit: Nova is answered in time all the same,
and what was given up is never committed.
"""

import concurrent.futures
import contextlib
import time

import pytest
import requests
import sqlalchemy as sa

from tests import databases as real_databases
from tests import patience
from tests.functional.controller import harness

DEADLINE_S = 1.5
N_AT_ONCE = 4
OPTIONS = {
    'placement': {'deadline_s': DEADLINE_S, 'budget_s': 0.05},
    'controller': {'db_timeout_s': 20},
}


@contextlib.contextmanager
def locked(engine):
    """No plan can be committed meanwhile, all can be read."""
    with engine.begin() as connection:
        connection.execute(sa.text(
            'UPDATE cluster SET generation = generation'))
        yield


def ask(tenant, number, **changes):
    """The answer."""
    found = requests.put(
        f'{tenant.controller.url}/v1/placements/{tenant.instance(number)}',
        json=harness.placement(
            number, f'g{number // 2}', slots=1000, n_hosts=8,
            launch_index=number % 2, project_id=tenant.project, **changes),
        timeout=harness.DEADLINE_S)
    assert found.status_code == 200, found.text
    return found.json()


def stored(engine, tenant, numbers):
    """Number -> host of each instance that is a member."""
    with engine.connect() as connection:
        hosts = dict(connection.execute(sa.text(
            'SELECT instance_uuid, host FROM members '
            'WHERE instance_uuid IS NOT NULL')).all())
        answered = set(connection.execute(sa.text(
            'SELECT instance_uuid FROM placements')).scalars())
    assert hosts.keys() <= answered
    return {number: hosts.get(tenant.instance(number)) for number in numbers
            if tenant.instance(number) in answered}


def wait_idle(controller):
    patience.wait_for(
        lambda: controller.metrics()['virtco_placements_under_way'] == 0,
        'the end of the last placement')


@pytest.fixture(scope='module', params=real_databases.of(
    'postgresql', real_databases.SERVERS, still='the locks of PostgreSQL'))
def slow(request, databases, tmp_path_factory):
    """A tenant of a controller, and the engine of its database."""
    home = tmp_path_factory.mktemp(request.param)
    connection = databases.make_current(request.param, home)
    engine = sa.create_engine(connection)
    with harness.running(home, OPTIONS | {
            'database': {'connection': connection}}) as controller:
        tenant = controller.tenant()
        # The first plan is slower than others; no matter what becomes of it.
        ask(tenant, 0)
        wait_idle(controller)
        yield tenant, engine
    engine.dispose()


def test_the_slow_phase_is_named_and_nothing_is_left(slow):
    """A group that is new, and the second VM of one that is planned."""
    tenant, engine = slow
    patience.wait_for(
        lambda: ask(tenant, 2)['status'] == 'planned', 'a first plan')
    before = tenant.controller.metrics().get(
        'virtco_late_placements_total{phase="commit"}', 0)
    with locked(engine):
        for number in (3, 4):
            watch = patience.Answer()
            answer = ask(tenant, number)
            assert answer['status'] == 'neutral', answer
            assert answer['slow_phase'] == 'commit', answer
            assert 'commit took ' in answer['why'], answer
            assert watch.seconds() < DEADLINE_S + 1
    after = tenant.controller.metrics()[
        'virtco_late_placements_total{phase="commit"}']
    assert after == before + 2
    wait_idle(tenant.controller)
    assert stored(engine, tenant, (3, 4)) == {}


def test_either_committed_or_given_up(slow):
    """Locks that end around the deadline of those who wait for them."""
    tenant, engine = slow
    answers = {}
    with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        for turn, part in enumerate((0.2, 0.95, 1.0, 1.1), 1):
            numbers = [10 * turn + 2 * i for i in range(N_AT_ONCE)]
            with locked(engine):
                asked = {number: pool.submit(ask, tenant, number)
                         for number in numbers}
                time.sleep(part * DEADLINE_S)
            answers |= {number: future.result()
                        for number, future in asked.items()}
    wait_idle(tenant.controller)
    assert stored(engine, tenant, answers) == {
        number: answer['host'] for number, answer in answers.items()
        if answer['status'] == 'planned'}
    assert {answer['status'] for answer in answers.values()} <= {
        'planned', 'neutral'}
    late = [answer for answer in answers.values()
            if answer['status'] == 'neutral']
    # Something was tested.
    assert late and len(late) < len(answers)
    assert all(answer['slow_phase'] for answer in late)
