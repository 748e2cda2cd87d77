# SPDX-License-Identifier: Apache-2.0

"""``/v1/placements`` and ``/v1/plans``."""

from typing import Any

import falcon
import msgspec

from virtco import app
from virtco import decoding
from virtco.api import context
from virtco.api import media
from virtco.api.policies import coflow as coflow_rules
from virtco.api.policies import operator as operator_rules
from virtco.api.policies import service as service_rules
from virtco.api.schemas import common
from virtco.api.schemas import placement as schema
from virtco.ask import answer as answers
from virtco.ask import request as requests

_PLACEMENT: decoding.Decoder[requests.Placement] = decoding.Decoder(
    requests.Placement)


class Placement:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._ask = rooms.ask
        self._follow = rooms.follow
        self._authorizer = authorizer

    def on_put(self, request: falcon.Request, response: falcon.Response,
               instance_uuid: str) -> None:
        self._authorizer.require(request, service_rules.PLACE)
        media.check('instance_uuid', instance_uuid, common.ID)
        asked = media.decode(request, _PLACEMENT)
        response.content_type = falcon.MEDIA_JSON
        response.data = answers.ENCODER.encode(self._ask.place(
            msgspec.structs.replace(asked, instance_uuid=instance_uuid)))

    def on_get(self, request: falcon.Request, response: falcon.Response,
               instance_uuid: str) -> None:
        found = self._ask.placement(instance_uuid)
        self._authorizer.require(request, coflow_rules.SHOW,
                                 {'project_id': found['project_id']})
        if not self._authorizer.may(request, operator_rules.HOSTS):
            # Hypervisors are the operators' business.
            found |= {'host': None, 'host_now': None, 'hosts': [],
                      'rows': {}, 'bottleneck': None}
            if found['status'] == 'planned':
                found['why'] = ''
        response.media = found

    def on_delete(self, request: falcon.Request, response: falcon.Response,
                  instance_uuid: str) -> None:
        self._authorizer.require(request, service_rules.PLACE)
        self._follow.release(instance_uuid)
        response.status = falcon.HTTP_204


class Explanation:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._ask = rooms.ask
        self._know = rooms.know
        self._clock = rooms.clock
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               instance_uuid: str) -> None:
        self._authorizer.require(request, operator_rules.PLANS)
        budget_s = media.number(request, 'budget_s', schema.BUDGET_S)
        found = self._ask.explain(self._ask.placement(instance_uuid),
                                  budget_s)
        response.media = found | {'findings': self._findings(found)}

    def _findings(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Of checks, about hosts of the group and the switches above."""
        live = self._know.live
        hosts = set(live.hosts_of_group(found['group'] or ''))
        tree = live.wire_tree(self._clock())
        chains = tree.chains()
        above = {one.name for host in hosts if host in tree.leaf_of
                 for one in chains[tree.leaf_of[host]]}
        return [{name: value for name, value in held.to_dict().items()
                 if name != 'evidence'} for held in self._know.findings.all()
                if held.row.subject in hosts | above]


class Advice:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._ask = rooms.ask
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.PLANS)
        response.media = {'moves': self._ask.adviser().known()}

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.PLANS)
        body = media.read(request, schema.ADVICE)
        response.media = {'moves': self._ask.advise(body.get('budget_s'))}


class Plans:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._ask = rooms.ask
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.PLANS)
        response.media = self._ask.what_if(
            media.read(request, schema.PLAN))
