# SPDX-License-Identifier: Apache-2.0

"""A project that sends more than it says pays for it with its next coflow."""

import contextlib
import signal
import sqlite3

import pytest

from tests.functional.controller import harness

WIRE = 1.0456
LIAR, HONEST = 'liar', 'honest'
SMALL = '[[0, "1MB"], ["1MB", 0]]'
LARGE = '[[0, "100MB"], ["100MB", 0]]'


class Cloud:
    """Two hosts; each group has its first VM at h0 and its second at h1."""

    def __init__(self, controller):
        self.controller = controller
        self.tenant = controller.tenant()
        self.sender, self.receiver = (harness.Edge(self.tenant, host)
                                      for host in ('h0', 'h1'))

    def launch(self, project_id, name, matrix):
        first = 2 * len(self.sender.vms)
        for row, edge in enumerate((self.sender, self.receiver)):
            self.tenant.place(
                first + row, name, matrix, launch_index=row,
                hosts={f'h{row}': 9}, project_id=project_id)
            self.tenant.notify('instance.create.end', first + row,
                               host=f'h{row}')
            edge.vms.append(first + row)
            edge.report()
        self.settled(lambda: name in self.order())
        return self.coflow(project_id, name)

    def coflow(self, project_id, name):
        return next(c for c in self.tenant.coflows(project_id=project_id)
                    if c['name'] == name)

    def send(self, coflow, payload_bytes):
        self.sender.count(coflow['id'], payload_bytes * WIRE, 'h1')
        self.sender.report()

    def order(self):
        policy = self.sender.policy() or {'classes': []}
        return [c['name'] for c in sorted(policy['classes'],
                                          key=lambda c: c['prio'])]

    def debt(self, project_id):
        return self.tenant.call(
            'GET', f'/v1/projects/{project_id}')['debt_bytes']

    def settled(self, check):
        return harness.wait_for(check, f'it, but {self.order()}')

    def stored_debt(self):
        with contextlib.closing(sqlite3.connect(
                self.controller.database)) as db:
            return dict(db.execute(
                'SELECT project_id, debt_bytes FROM projects')).get(LIAR, 0)


@pytest.fixture
def cloud(make):
    # Patient, because the machine that runs the tests may be busy.
    return Cloud(make({'placement': {'deadline_s': 50}}))


def test_a_liar_pays_on_with_its_next_coflow(cloud):
    lie = cloud.launch(LIAR, 'lie', SMALL)
    cloud.send(lie, 30e6)
    # 2 MB were claimed, half as much again is tolerated.
    assert cloud.debt(LIAR) == pytest.approx(27e6, rel=1e-3)
    assert cloud.coflow(LIAR, 'lie')['in_debt']
    assert cloud.controller.metrics()[
        f'virtco_project_debt_bytes{{project_id="{LIAR}"}}'] > 26e6
    cloud.tenant.call('PATCH', f'/v1/coflows/{lie["id"]}', {'state': 'done'})
    honest = cloud.launch(HONEST, 'large', '[[0, "5MB"], [0, 0]]')
    cloud.send(honest, 0.2e6)
    after = cloud.launch(LIAR, 'medium', SMALL)
    cloud.send(honest, 0.2e6)
    cloud.send(after, 0.2e6)
    # It is the shorter one, but nobody believes that: it is in the first
    # queue, of 0.5 s, and the other one has 0.4 s left.
    cloud.settled(lambda: cloud.order() == ['large', 'medium'])
    assert cloud.debt(LIAR) == pytest.approx(26.8e6, rel=1e-3)
    assert not cloud.coflow(HONEST, 'large')['in_debt']
    # Nobody forgets it.
    harness.wait_for(lambda: cloud.stored_debt() < 26.9e6)
    cloud.controller.stop(signal.SIGKILL)
    cloud.controller.start()
    assert cloud.debt(LIAR) == pytest.approx(26.8e6, rel=1e-3)
    cloud.send(honest, 0.2e6)
    cloud.send(after, 0.2e6)
    cloud.settled(lambda: cloud.order() == ['large', 'medium'])
    cloud.tenant.call('PATCH', f'/v1/projects/{LIAR}', {'debt_bytes': 0})
    cloud.send(honest, 0.2e6)
    cloud.send(after, 0.2e6)
    cloud.settled(lambda: cloud.order() == ['medium', 'large'])
    assert cloud.debt(LIAR) == 0


def test_bytes_that_were_claimed_pay_the_debt(cloud):
    lie = cloud.launch(LIAR, 'lie', SMALL)
    cloud.send(lie, 7e6)
    assert cloud.debt(LIAR) == pytest.approx(4e6, rel=1e-3)
    honest = cloud.launch(LIAR, 'large', LARGE)
    cloud.send(honest, 3e6)
    assert cloud.debt(LIAR) == pytest.approx(1e6, rel=1e-2)
    cloud.send(honest, 2e6)
    assert cloud.debt(LIAR) == 0
    harness.wait_for(lambda: cloud.stored_debt() == 0)


@pytest.mark.parametrize('factor', [0.5, 1, 1.4])
def test_who_is_honest_or_nearly_so_owes_nothing(cloud, factor):
    """Sizes that were guessed within the tolerance, and a liar beside it."""
    lie = cloud.launch(LIAR, 'lie', SMALL)
    honest = cloud.launch(HONEST, 'large', LARGE)
    cloud.send(lie, 30e6)
    for _ in range(4):
        cloud.send(honest, factor * 200e6 / 4)
    cloud.send(lie, 1e6)
    assert (cloud.debt(HONEST), cloud.debt(LIAR) > 0) == (0, True)
    assert not cloud.coflow(HONEST, 'large')['in_debt']
