# SPDX-License-Identifier: Apache-2.0

"""``/v1/topology``."""

import dataclasses
from typing import Any

import falcon

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api.policies import operator as rules
from virtco.api.schemas import topology as schema
from virtco.topology import capacity
from virtco.topology import tree
from virtco.topology.formats import plain

#: Of groups, where the question names none.
SIZES = (2, 4, 8, 16, 32)


class Topology:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._know = rooms.know
        self._clock = rooms.clock
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, rules.TOPOLOGY)
        response.media = self._shown(self._know.topology.get())

    def on_put(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, rules.TOPOLOGY)
        body = media.read(request, schema.TOPOLOGY)
        known = self._know.topology
        known.refresh()
        planes = plain.load({'planes': body['planes']}).planes
        changes = known.would_change(planes)
        if not body.get('dry_run'):
            before = known.generation()
            known.replace(planes, body.get('generation'))
            if changes:
                self._know.history.add(
                    self._authorizer.who(request),
                    'topology ' + ', '.join(plane.name for plane in planes),
                    f'generation {before}',
                    f'generation {known.generation()}, {len(changes)} '
                    'changes')
        response.media = {
            'changes': [dataclasses.asdict(change) for change in changes],
            'applied': not body.get('dry_run'),
            'generation': known.generation(),
            'hosts_without_leaf': self._hosts_without_leaf(
                known.get().replaced(planes))}

    def _shown(self, topology: tree.Topology) -> dict[str, Any]:
        return {**plain.dump(topology),
                'generation': self._know.topology.generation(),
                'hosts_without_leaf': self._hosts_without_leaf(topology)}

    def _hosts_without_leaf(self, topology: tree.Topology
                            ) -> dict[str, list[str]]:
        """By plane: hosts with an edge module that it does not have."""
        hosts = [seen.host for seen in self._know.live.views(self._clock())]
        found = {}
        for plane in topology.planes:
            known = set(plane.hosts())
            found[plane.name] = [host for host in hosts if host not in known]
        return found


class Plane:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._topology = rooms.know.topology
        self._authorizer = authorizer

    def on_delete(self, request: falcon.Request, response: falcon.Response,
                  plane: str) -> None:
        self._authorizer.require(request, rules.TOPOLOGY)
        self._topology.delete(plane)
        response.status = falcon.HTTP_204


class Capacity:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._ask = rooms.ask
        self._topology = rooms.know.topology
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        """How many groups fit where: each host's room less what is held."""
        self._authorizer.require(request, rules.TOPOLOGY)
        body = media.read(request, schema.CAPACITY)
        name = body.get('plane', tree.FRONT_END)
        plane = self._topology.get().plane(name)
        if plane is None:
            raise exception.NotFound(what='Plane', id=name)
        free = self._ask.free_after_bookings({
            entry['host']: entry['free'] for entry in body['hosts']})
        found = capacity.count(plane, body['level'], body['flavor'], free,
                               body.get('vms') or SIZES)
        response.media = {
            'plane': plane.name, 'level': body['level'],
            'domains': [dataclasses.asdict(domain) | {'groups': {
                str(size): count for size, count in domain.groups.items()}}
                for domain in found.domains],
            'hosts_without_leaf': list(found.hosts_without_leaf)}
