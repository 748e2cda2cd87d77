# SPDX-License-Identifier: Apache-2.0

"""Laws of announcements: any sequence of them, against a plain model."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit import stored
from virtco import exception
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.model import states
from virtco.objects import announcements

NAMES = st.sampled_from('vwxyz')
#: Flows of a matrix of three rows; both directions of a pair differ.
FLOWS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(
        lambda ends: ends[0] != ends[1]),
    st.integers(1, 10 ** 6), min_size=1)


@dataclasses.dataclass(frozen=True)
class Announce:
    """:ivar flows: of each coflow, by its name."""

    flows: dict
    expires_s: int


@dataclasses.dataclass(frozen=True)
class End:
    """What the name says has ended, unless none has it."""

    name: str


STEPS = st.lists(st.one_of(
    st.builds(Announce, st.dictionaries(
        NAMES, FLOWS, min_size=1, max_size=3), st.integers(1, 999)),
    st.builds(End, NAMES)), max_size=8)


def dense(flows):
    return [[flows.get((src, dst), 0) for dst in range(3)]
            for src in range(3)]


@pytest.fixture(autouse=True)
def _keep(monkeypatch):
    """Restore the constant that each example sets."""
    monkeypatch.setattr(announcements, 'MAX_COFLOWS', 3)


class Bench:
    """A group of three rows with a hinted coflow, used over and over."""

    def __init__(self):
        self.database = stored.database()
        stored.add(self.database, stored.group())
        self.changed = []
        self.now_s = 0.0

    def begin(self, most):
        self.changed.clear()
        self.now_s = 100.0
        announcements.MAX_COFLOWS = most
        with self.database.writer() as session:
            session.query(models.Coflow).delete()
        stored.add(self.database, stored.coflow('p-a', position=4))
        return announcements.Announcements(
            stored.conf(), stored.state(self.database,
                                        invalidate=self.changed.append),
            lambda: self.now_s)

    def rows(self):
        """All that is stored of each coflow, by name."""
        with self.database.reader() as session:
            return {one.name: {
                column.name: getattr(one, column.name)
                for column in models.Coflow.__table__.columns}
                for one in db_groups.coflows(session, 'p-a')}

    def flows(self, name):
        with self.database.reader() as session:
            one, = session.query(models.Coflow).filter_by(name=name)
            found = codec.decode_coflow(one).matrix
            return dict(zip(zip(found.src.tolist(), found.dst.tolist()),
                            found.size_bytes.tolist()))

    def end(self, name):
        with self.database.writer() as session:
            for one in session.query(models.Coflow).filter_by(name=name):
                one.state = states.CoflowState.DONE
                one.ended_at, one.iteration = self.now_s, 1


@pytest.fixture(scope='module')
def bench():
    return Bench()


@given(steps=STEPS, most=st.integers(3, 5))
def test_announcements_do_as_their_model(bench, steps, most):
    """The model knows names alone: those that live, and when others ended.

    A refused announcement changes nothing. One that is taken replaces its
    names, displaces as few as it must, the first that ended first, and
    stands behind all others.
    """
    room = bench.begin(most)
    live, ended = set(), {}
    for step in steps:
        bench.now_s += 1
        before = bench.rows()
        if isinstance(step, End):
            bench.end(step.name)
            if step.name in live | ended.keys():
                live.discard(step.name)
                ended[step.name] = bench.now_s
            continue
        names = step.flows.keys()
        matrix = [{'name': name, 'tm': dense(flows)}
                  for name, flows in step.flows.items()]
        n_told = len(bench.changed)
        if len(live | names) > most:
            with pytest.raises(exception.QuotaExceeded) as caught:
                room.announce('p', 'a', 'n', matrix, step.expires_s)
            assert caught.value.kwargs['value'] == len(live | names)
            assert bench.rows() == before and len(bench.changed) == n_told
            continue
        ids = room.announce('p', 'a', 'n', matrix, step.expires_s)
        live |= names
        ended = {name: at for name, at in ended.items() if name not in names}
        while len(live) + len(ended) > most:
            del ended[min(ended, key=ended.__getitem__)]
        after = bench.rows()
        assert after.keys() == {'c'} | live | ended.keys()
        assert all(after[name] == before[name]
                   for name in after.keys() - names)
        assert [after[name]['id'] for name in names] == ids
        assert not {one['id'] for one in before.values()} & set(ids)
        last = max(one['position'] for one in before.values())
        assert [after[name]['position'] for name in names] == [
            last + 1 + i for i in range(len(names))]
        for name, flows in step.flows.items():
            assert bench.flows(name) == flows
            assert after[name]['created_at'] == bench.now_s
            assert after[name]['expires_at'] == bench.now_s + step.expires_s
        assert bench.changed[n_told:] == [['p-a']]


@given(others=st.lists(NAMES, unique=True, max_size=2), place=st.integers(
    0, 2), flows=FLOWS)
def test_a_name_of_the_hint_refuses_all_beside_it(bench, others, place,
                                                  flows):
    room = bench.begin(5)
    room.announce('p', 'a', 'n', [{'name': 'v', 'tm': dense(flows)}], 60.0)
    before, n_told = bench.rows(), len(bench.changed)
    names = others[:place] + ['c'] + others[place:]
    with pytest.raises(exception.HintInvalid) as caught:
        room.announce('p', 'a', 'n', [
            {'name': name, 'tm': dense(flows)} for name in names], 60.0)
    assert caught.value.kwargs['field'] == 'name'
    assert bench.rows() == before and len(bench.changed) == n_told
