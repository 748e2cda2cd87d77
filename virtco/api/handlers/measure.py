# SPDX-License-Identifier: Apache-2.0

"""``/v1/checks``, ``/v1/matrices`` and ``/v1/performers``."""

import dataclasses
import math
from typing import Any

import falcon
import numpy as np

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api.policies import operator as rules
from virtco.api.schemas import measure as schema
from virtco.decide import checks
from virtco.measure import constant
from virtco.measure import history
from virtco.measure import performers

KINDS = ('rate', 'latency')
STATISTICS = ('constant', 'latest', 'median', 'least', 'most', 'range')
#: Of more hosts a matrix is asked for in parts, with hosts=…
MOST_HOSTS = 512


class Checks:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rooms = rooms
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, rules.CHECKS)
        response.media = {
            'checks': self._rooms.decide.orders.checks(),
            'findings': [one.to_dict() for one
                         in self._rooms.know.findings.all()]}

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, rules.CHECKS)
        body = media.read(request, schema.CHECK)
        purpose = checks.Purpose(body.pop('purpose', checks.Purpose.CHECK))
        if len(body) > 1 or not (body or purpose is checks.Purpose.DISCOVER):
            raise exception.Invalid(field='hosts or group',
                                    value=sorted(body),
                                    limit='one of the two')
        response.status = falcon.HTTP_202
        response.media = self._rooms.decide.orders.check(
            self._hosts(body), purpose)

    def _hosts(self, body: dict[str, Any]) -> list[str]:
        """Those that are named, those of a group, or all that report."""
        live = self._rooms.know.live
        if (group := body.get('group')) is not None:
            hosts = list(live.hosts_of_group(group))
            if not hosts:
                raise exception.NotFound(what='Group', id=group)
            return hosts
        if 'hosts' in body:
            return list(body['hosts'])
        return [seen.host for seen in live.views(self._rooms.clock())
                if seen.last_report_s is not None]


class Check:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rooms = rooms
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               check_id: str) -> None:
        self._authorizer.require(request, rules.CHECKS)
        response.media = self._rooms.decide.orders.find_check(check_id)


class Matrices:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rooms = rooms
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               kind: str) -> None:
        """Statistic of each pair: row the sender, column the receiver."""
        self._authorizer.require(request, rules.RATES)
        _one_of('kind', kind, KINDS)
        statistic = request.get_param('statistic') or (
            'constant' if kind == 'rate' else 'median')
        _one_of('statistic', statistic, STATISTICS)
        if statistic == 'constant' and kind != 'rate':
            raise exception.Invalid(field='statistic', value=statistic,
                                    limit='one for latencies: '
                                    + ', '.join(STATISTICS[1:]))
        now_s = self._rooms.clock()
        at_s = request.get_param_as_float('at', min_value=0)
        table = self._rooms.know.pairs.table(0.0)
        given = request.get_param('hosts')
        hosts = given.split(',') if given else None
        if at_s is not None:
            table = until(table, at_s)
        values = (table.rates_bps if kind == 'rate' else table.rtts_s)
        known = self._rooms.know.pairs.known.component
        if statistic != 'constant':
            found = statistics(values, statistic)
        elif at_s is None and known is not None and len(
                known.rates) == values.shape[1]:
            found = known.rates
        else:
            found = constant.fit(values).rates if values.size else values[0]
        response.media = _shown(kind, statistic, table, found, hosts, now_s)


def until(table: history.Table, at_s: float) -> history.Table:
    """What was known at a time; each pair's newest last."""
    known = table.times_s <= at_s
    times_s = np.where(known, table.times_s, np.nan)
    order = np.argsort(np.where(known, times_s, -np.inf), axis=0,
                       kind='stable')

    def moved(values: Any) -> Any:
        return np.take_along_axis(np.where(known, values, np.nan), order, 0)

    return dataclasses.replace(
        table, times_s=moved(table.times_s),
        rates_bps=moved(table.rates_bps), rtts_s=moved(table.rtts_s))


def statistics(values: Any, statistic: str) -> Any:
    """Of each pair over time, shape (n_pairs,)."""
    if not values.size:
        return values[0]
    if statistic == 'latest':
        return values[-1]
    low, middle, high = (constant.quantile(values, q)
                         for q in (0.0, 0.5, 1.0))
    return {'median': middle, 'least': low, 'most': high,
            'range': high - low}[statistic]


def _shown(kind: str, statistic: str, table: history.Table, values: Any,
           hosts: list[str] | None, now_s: float) -> dict[str, Any]:
    names = sorted(table.hosts) if hosts is None else hosts
    if len(names) > MOST_HOSTS:
        raise exception.Invalid(field='hosts', value=len(names),
                                limit=f'at most {MOST_HOSTS}; name some')
    place = {name: i for i, name in enumerate(table.hosts)}
    for name in names:
        if name not in place:
            raise exception.Invalid(field='hosts', value=name,
                                    limit='hosts that were measured')
    rows = np.array([place[name] for name in names], dtype=np.int64)
    both = np.ix_(rows, rows)
    return {'kind': kind, 'unit': 'bit/s' if kind == 'rate' else 's',
            'statistic': statistic, 'hosts': names,
            'values': _plain(table.matrix(values)[both]),
            'ages_s': _plain(now_s - table.matrix(
                table.times_s[-1] if table.times_s.size
                else np.zeros(0))[both])}


def _plain(matrix: Any) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row]
            for row in matrix.tolist()]


class Performers:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._pairs = rooms.know.pairs
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        """Hosts by what their pairs do; those with reasons are poor."""
        self._authorizer.require(request, rules.RATES)
        known = self._pairs.known
        component = known.component
        found = (() if component is None else performers.performers(
            known.table, component.rates))
        response.media = {
            'estimator': component and str(component.estimator),
            'noise': component and component.noise,
            'trust': component and str(component.trust),
            'errors': {str(one): error for one, error
                       in self._pairs.errors().items()},
            'hosts': [{
                name: value if not isinstance(value, float)
                or math.isfinite(value) else None
                for name, value in (dataclasses.asdict(one) | {
                    'reasons': list(one.reasons)}).items()}
                for one in found]}


def _one_of(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise exception.Invalid(field=field, value=value,
                                limit='one of ' + ', '.join(known))
