# SPDX-License-Identifier: Apache-2.0

"""Rates of pairs of hosts, ordered measurements, checks and performers."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from virtco import exception
from virtco import units
from virtco.api.call import Call
from virtco.db import groups as db_groups
from virtco.measure import constant
from virtco.measure import history
from virtco.measure import performers as poor
from virtco.wire import check as check_wire
from virtco.wire import probe as probe_wire
from virtco.wire import rate as wire

#: Hosts of a matrix in one answer, at most; a client asks for a larger one in
#: parts, with hosts=…
MOST_HOSTS = 512
_QUANTILES = {'median': 0.5, 'least': 0.0, 'most': 1.0}


def list_rates(call: Call) -> wire.Rates:
    """List the newest measurement of each pair of hosts, with its age."""
    return wire.Rates(call.rooms.state.rates.pairs(call.rooms.clock()))


def show_probing(call: Call) -> probe_wire.Schedule:
    """Return the measurements that the leader plans.

    :raises virtco.exception.Starting: before the leader told them.
    """
    found = call.rooms.decide.orders.schedule()
    if found is None:
        raise exception.Starting(
            why='no scheduler that leads told what it measures')
    return found


def order_probes(call: Call, body: probe_wire.ProbeRequest
                 ) -> probe_wire.Ordered:
    """Measure pairs of hosts soon."""
    return probe_wire.Ordered(call.rooms.decide.orders.probe(body))


def show_probe(call: Call, probe_id: str) -> probe_wire.Results:
    """Show the results of ordered measurements."""
    return call.rooms.decide.orders.find_probe(probe_id)


def list_checks(call: Call) -> check_wire.Checks:
    """List the latest checks and the findings that hold."""
    return check_wire.Checks(
        checks=call.rooms.decide.orders.checks(),
        findings=list(call.rooms.objects.findings.all()))


def order_check(call: Call, body: check_wire.CheckRequest) -> check_wire.Check:
    """Order a check of hosts, or of the hosts of a group.

    :raises virtco.exception.Invalid: without either, or with both.
    """
    if (body.hosts is not None) == (body.group is not None) and (
            body.hosts is not None or body.purpose != 'discover'):
        raise exception.Invalid(
            field='hosts or group', limit='one of the two',
            value=None if body.hosts is None else 'both')
    return call.rooms.decide.orders.check(
        _hosts(call, body), body.purpose)


def _hosts(call: Call, body: check_wire.CheckRequest) -> list[str]:
    """Find those that are named, those of a group, or all that report."""
    live = call.rooms.state.live
    if body.group is not None:
        with call.rooms.state.database.reader() as session:
            group = db_groups.only_living(session, None, body.group)
        hosts = list(live.hosts_of_group(group.id))
        if not hosts:
            raise exception.NotFound(what='Group', id=body.group)
        return hosts
    if body.hosts is not None:
        return body.hosts
    return [seen.host for seen in live.views(call.rooms.clock())
            if seen.last_report_s is not None]


def show_check(call: Call, check_id: str) -> check_wire.Check:
    """Show a check with its progress and findings."""
    return call.rooms.decide.orders.find_check(check_id)


def show_matrix(call: Call, kind: str, query: wire.MatrixQuery) -> wire.Matrix:
    """Return rates or latencies of all pairs, now or at an earlier time."""
    statistic = query.statistic or (
        'constant' if query.kind == 'rate' else 'median')
    if statistic == 'constant' and query.kind != 'rate':
        raise exception.Invalid(field='statistic', value=statistic,
                                limit='one of latest, median, least, most and '
                                'range, as latencies have')
    rates = call.rooms.state.rates
    table = rates.table(0.0, units.number(query.at))
    values = (table.rates_bps if query.kind == 'rate' else table.rtts_s)
    known = rates.known
    if statistic != 'constant':
        found = statistics(values, statistic)
    # The estimate may be of other pairs, a second ago.
    elif query.at is None and known.component is not None and (
            known.table.hosts == table.hosts
            and np.array_equal(known.table.ends, table.ends)):
        found = known.component.rates
    else:
        found = constant.fit(values).rates if values.size else values[0]
    names = _names(table, query.hosts.split(',') if query.hosts else None)
    place = {name: i for i, name in enumerate(table.hosts)}
    rows = np.array([place[name] for name in names], dtype=np.int64)
    both = np.ix_(rows, rows)
    return wire.Matrix(
        kind=query.kind, unit='bit/s' if query.kind == 'rate' else 's',
        statistic=statistic, hosts=names,
        values=_plain(table.matrix(found)[both]),
        ages_s=_plain(call.rooms.clock() - table.matrix(
            table.times_s[-1] if table.times_s.size
            else np.zeros(0))[both]))


def statistics(values: Any, statistic: str) -> Any:
    """Compute a statistic of each pair over time, shape (n_pairs,)."""
    if statistic == 'latest' or not values.size:
        return values[-1]
    if statistic == 'range':
        return np.subtract(*(constant.quantile(values, q) for q in (1.0, 0.0)))
    return constant.quantile(values, _QUANTILES[statistic])


def _names(table: history.Table, hosts: Sequence[str] | None) -> list[str]:
    """Check the hosts that are asked for; all that were measured."""
    names = sorted(table.hosts) if hosts is None else list(hosts)
    if len(names) > MOST_HOSTS:
        raise exception.Invalid(field='hosts', value=len(names),
                                limit=f'at most {MOST_HOSTS} (name some)')
    for name in names:
        if name not in table.hosts:
            raise exception.Invalid(field='hosts', value=name,
                                    limit='a host that was measured')
    return names


def _plain(matrix: Any) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row]
            for row in matrix.tolist()]


def list_performers(call: Call) -> wire.Performers:
    """List hosts with the reasons for which they perform poorly."""
    rates = call.rooms.state.rates
    known = rates.known
    component = known.component
    found = ([] if component is None else poor.performers(
        known.table, component.rates))
    return wire.Performers(
        estimator=None if component is None else str(component.estimator),
        noise=None if component is None else component.noise,
        trust=None if component is None else str(component.trust),
        errors={str(one): error for one, error in rates.errors.items()},
        hosts=found)
