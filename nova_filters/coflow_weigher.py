# SPDX-License-Identifier: Apache-2.0

"""CoflowWeigher: the controller's order of hosts as Nova's weights."""

from typing import Any

import nova.conf
from nova.scheduler import weights
from oslo_log import log as logging

from nova_filters import plugin_options as virtco_conf
from nova_filters import recent
from nova_filters import request
from virtco import exception

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF


class CoflowWeigher(weights.BaseHostWeigher):
    """Ranks all hosts, since Nova may have to take the second.

    One call to the controller per pass; a request without a hint makes none.
    Whatever goes wrong, all hosts weigh the same.
    """

    minval = 0.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        virtco_conf.register_opts(CONF)
        self._told = recent.Recent()

    def weight_multiplier(self, host_state: Any) -> float:
        """Return ``[virtco] weight_multiplier``, the same for every host."""
        return float(CONF.virtco.weight_multiplier)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Return 0: one host alone says nothing."""
        return 0.0

    def weigh_objects(self, weighed_obj_list: list[Any],
                      weight_properties: Any) -> list[float]:
        """Weigh hosts from 0 to 1 by their ranks in the answer."""
        states = [weighed.obj for weighed in weighed_obj_list]
        try:
            ranks = self._ranks(states, weight_properties)
        except Exception:  # whatever it is, the server still boots
            LOG.exception('CoflowWeigher weighs nothing')
            ranks = {}
        return [1.0 - ranks.get(state.host, len(states)) / len(states)
                for state in states]

    def _ranks(self, states: list[Any], spec: Any) -> dict[str, int]:
        """Rank by host, 0 first; empty for "no opinion"."""
        answer = (request.kept(spec, states)
                  or request.ask(spec, states, CONF))
        if answer is None:
            return {}
        if answer['status'] != 'planned':
            if self._told.put(request.request_id(spec)):
                LOG.warning('Instance %s is scheduled without virtco: %s',
                            spec.instance_uuid,
                            exception.escaped(answer.get('why', '')))
            return {}
        candidates = {state.host for state in states}
        order = [entry['host'] for entry in answer['hosts']
                 if entry['host'] in candidates]
        return {host: rank for rank, host in enumerate(dict.fromkeys(order))}
