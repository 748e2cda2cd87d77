# SPDX-License-Identifier: Apache-2.0

"""What is written at once, and that its order loses and doubles nothing."""

import itertools
import types

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from tests.unit.state import test_state
from virtco import exception
from virtco.db import models
from virtco.state import host_state
from virtco.state import live_state
from virtco.state import summary
from virtco.state import transactions

N_HOSTS, SIZE_BYTES = 5, 1000
MIB = 2 ** 20


def cut(unsaved, most_bytes=1):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, 'MOST_BYTES', most_bytes)
        return list(transactions.cut(
            unsaved, [host_state.encoded(row) for row in unsaved.hosts]))


class Cloud:
    """Coflows of one flow each, and processes that count them by turns."""

    def __init__(self, ends):
        self.ends = ends
        self.sent = dict.fromkeys(range(len(ends)), 0)
        self.rows, self.hosts, self.now_s = {}, {}, 1.0
        self.take_over()

    def take_over(self):
        self.state = live_state.LiveState()
        self.state.load_groups(
            [known.member(f'g{number}', row, f'h{host}')
             for number, ends in enumerate(self.ends)
             for row, host in enumerate(ends)],
            [known.stored(f'c{number}', f'g{number}', n_vms=2,
                          project_id=f'p{number % 2}',
                          flows=f'[[0,1,{SIZE_BYTES}]]',
                          progress=self.rows.get(f'c{number}', '[]'))
             for number in self.sent], anew=True)
        self.state.load_hosts([types.SimpleNamespace(**row)
                               for row in self.hosts.values()])

    def report(self, host):
        self.now_s += 0.5
        self.state.intake(f'h{host}', made.report(coflows=[
            {'coflow_id': f'c{number}', 'sent_bytes': self.sent[number],
             'destinations': [{'host': f'h{ends[1]}',
                               'sent_bytes': self.sent[number]}]}
            for number, ends in enumerate(self.ends) if ends[0] == host]),
            self.now_s)

    def flush(self, most_bytes, n_written):
        """:param n_written: transactions before the database is away."""
        unsaved = self.state.take_unsaved()
        parts = cut(unsaved, most_bytes)
        for part in parts[:n_written]:
            self.rows |= {row['id']: row['progress'] for row in part.coflows}
            self.hosts |= {row['host']: row for row in part.hosts}
        if n_written < len(parts):
            self.state.not_saved(unsaved)
        else:
            self.state.saved(unsaved)


@given(
    st.lists(st.permutations(range(N_HOSTS)).map(lambda found: found[:2]),
             min_size=1, max_size=5),
    st.lists(st.tuples(
        st.integers(0, 4), st.integers(0, 150), st.booleans(),
        st.sampled_from(['', 'flush', 'die']), st.integers(0, 6),
        st.sampled_from([1, 300, 10 ** 9])), max_size=12))
def test_a_flush_that_ends_half_way_loses_and_doubles_nothing(ends, steps):
    cloud = Cloud(ends)
    for number, size, is_late, event, n_written, most_bytes in steps:
        number %= len(ends)
        cloud.sent[number] = min(SIZE_BYTES - 1, cloud.sent[number] + size)
        if not is_late:
            cloud.report(ends[number][0])
        if event:
            cloud.flush(most_bytes, n_written)
        if event == 'die':
            cloud.take_over()
    for host in range(N_HOSTS):
        cloud.report(host)
    for number, sent_bytes in cloud.sent.items():
        assert cloud.state.status(f'c{number}').sent_bytes == pytest.approx(
            sent_bytes, rel=1e-6, abs=1e-3)


def unsaved(debts=(), findings=()):
    """Two coflows from h0, one from h1 and one from h2; h3 counts none."""
    cloud = Cloud([(0, 1), (0, 2), (1, 2), (2, 3)])
    cloud.sent = dict.fromkeys(cloud.sent, 5)
    for host in range(4):
        cloud.report(host)
    found = cloud.state.take_unsaved()
    return summary.Unsaved(
        found.coflows, found.hosts, dict.fromkeys(debts, 7.0), found.ended,
        tuple(findings), found.projects)


def shown(parts):
    return [(sorted(row['id'] for row in part.coflows),
             [row['host'] for row in part.hosts], sorted(part.debts),
             part.findings) for part in parts]


def test_what_a_counter_connects_stays_together():
    assert shown(cut(unsaved())) == [
        (['c0', 'c1'], ['h0'], [], ()), (['c2'], ['h1'], [], ()),
        (['c3'], ['h2'], [], ()), ([], ['h3'], [], ())]
    # p1 has c1 and c3; p9 was forgiven.
    assert shown(cut(unsaved(['p1', 'p9'], ['x']))) == [
        (['c0', 'c1', 'c3'], ['h0', 'h2'], ['p1'], ()),
        (['c2'], ['h1'], [], ()), ([], ['h3'], ['p9'], ('x',))]


def test_few_rows_are_one_transaction():
    everything = [(['c0', 'c1', 'c2', 'c3'], ['h0', 'h1', 'h2', 'h3'], ['p9'],
                   ('x',))]
    found = unsaved(['p9'], ['x'])
    assert shown(cut(found, transactions.MOST_BYTES)) == everything
    ((_, _, debts, findings),) = shown(cut(summary.Unsaved(
        [], [], {'p9': 7.0}, (), ('x',))))
    assert (debts, findings) == (['p9'], ('x',))


@pytest.fixture
def bench():
    found = test_state.Bench()
    for number in range(12):
        found.state.report(f'h{number}', msgspec.structs.replace(
            made.report(), health='x' * 8 * MIB))
    return found


def written_bytes(bench, monkeypatch, most=None):
    """Let transactions end in an error after so many; return the bytes that
    the others wrote.
    """
    found, as_leader = [], bench.database.as_leader
    numbers = itertools.count()

    def counted(work):
        if next(numbers) == most:
            raise exception.DatabaseUnavailable(why='a test')
        before = sum(len(row.report) for row in bench.rows(models.Host))
        as_leader(work)
        # Others have their turn in between.
        assert not bench.database._sqlite_turn.locked()
        found.append(sum(len(row.report) for row in bench.rows(models.Host))
                     - before)

    with monkeypatch.context() as patch:
        patch.setattr(bench.database, 'as_leader', counted)
        if most is None:
            bench.state.flush()
        else:
            with pytest.raises(exception.DatabaseUnavailable):
                bench.state.flush()
    return found


def test_no_transaction_takes_long(bench, monkeypatch):
    found = written_bytes(bench, monkeypatch)
    assert len(found) >= 3 and sum(found) > 96 * MIB
    assert max(found) < 2 * transactions.MOST_BYTES
    # All is stored, and once.
    assert bench.state.live.take_unsaved().is_empty()


def test_what_was_not_written_is_written_later(bench, monkeypatch):
    first = written_bytes(bench, monkeypatch, most=2)
    assert len(first) == 2
    assert sum(first) + sum(written_bytes(bench, monkeypatch)) > 96 * MIB
    assert len(bench.rows(models.Host)) == 12
    assert bench.state.live.take_unsaved().is_empty()
