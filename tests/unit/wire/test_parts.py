# SPDX-License-Identifier: Apache-2.0

"""A report that is too long for a frame arrives as it was."""

import msgspec
import pytest

from tests.unit import made
from virtco import exception
from virtco.wire import messages
from virtco.wire import parts
from virtco.wire import reports

MOST_BYTES = 30_000


def _coflow(name, n_destinations):
    return reports.CoflowCounters(name, 9, 8, 7, 6, tuple(
        reports.DestinationCounter(f'h{number}', number)
        for number in range(n_destinations)))


LONG = msgspec.structs.replace(
    made.report(health='ok', error='e'),
    coflows=(_coflow('none', 0), _coflow('wide', 1200),
             *(_coflow(f'c{number}', 2) for number in range(300))),
    pairs=tuple(reports.PairCounter('1.1.1.1', f'2.2.2.{number}', 5)
                for number in range(200)),
    peers=tuple(reports.PeerCounter('tap', f'2.2.2.{number}', 5, 6)
                for number in range(200)),
    ports=tuple(reports.Port(f'vm{number}', notes=('n',))
                for number in range(300)))


def test_parts_are_short_and_full_and_make_the_report():
    found, rest = parts.cut(LONG, MOST_BYTES)
    assert parts.joined(found, rest) == LONG
    lengths = [len(messages.pack(part)) for part in found]
    assert max(lengths) <= MOST_BYTES
    # No two of them would fit into one.
    assert min(a + b for a, b in zip(lengths, lengths[1:])) > MOST_BYTES
    assert messages.decode(messages.pack(found[0])) == found[0]
    assert len(messages.pack(rest)) < 1000 and rest.error == 'e'


def test_a_report_is_cut_only_where_it_must_be():
    whole = messages.pack(messages.Whole(LONG))
    assert messages.pack_report(LONG, len(whole)) == [whole]
    *first, last = map(messages.decode, messages.pack_report(
        LONG, len(whole) - 1))
    assert first
    assert parts.joined(first, last.report) == LONG
    assert parts.joined((), LONG) == LONG


def test_rows_of_the_rest_count_as_well():
    assert parts.joined(
        [parts.Part(coflows=(_coflow('a', 1),))], msgspec.structs.replace(
            made.report(), coflows=(_coflow('b', 2),))).coflows == (
                _coflow('a', 1), _coflow('b', 2))


def test_a_row_that_does_not_fit_is_alone():
    port = reports.Port('vm', notes=('x' * 500,))
    report = msgspec.structs.replace(made.report(), ports=(port, port, port))
    found, _ = parts.cut(report, 400)
    assert found == [parts.Part(ports=(port,))] * 3


@pytest.mark.parametrize('name, row', [
    ('coflows', _coflow('c', 0)), ('pairs', LONG.pairs[0]),
    ('peers', LONG.peers[0]), ('ports', LONG.ports[0])])
def test_there_are_no_more_rows_than_a_report_may_have(
        monkeypatch, name, row):
    monkeypatch.setitem(reports.MOST_ROWS, name, 2)
    rows = [msgspec.structs.replace(row, coflow_id=f'c{number}')
            if name == 'coflows' else row for number in range(3)]
    rest = msgspec.structs.replace(made.report(), **{name: (rows[0],)})
    parts.joined([parts.Part(**{name: (rows[1],)})], rest)
    with pytest.raises(exception.Invalid, match='at most 2 in a report'):
        parts.joined([parts.Part(**{name: tuple(rows[1:])})], rest)


def test_nor_more_destinations(monkeypatch):
    monkeypatch.setattr(reports, 'MOST_CHILDREN', 6)
    part, rest = parts.Part(coflows=(_coflow('a', 3),)), made.report()
    assert len(parts.joined([part] * 2, rest).coflows[0].destinations) == 6
    with pytest.raises(exception.Invalid, match='9 destinations'):
        parts.joined([part] * 3, rest)
