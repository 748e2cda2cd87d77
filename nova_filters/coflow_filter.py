# SPDX-License-Identifier: Apache-2.0

"""CoflowFilter: vetoes, and the hosts that a required wish leaves.

Hosts are chosen by CoflowWeigher. The filter drops hosts only where the
server's hint requires a place (``virtco:within``, ``virtco:spread``) and the
controller has answered: all of them where the wish is refused, else those
that do not keep to it. Without an answer it passes every host.

Put this filter last in ``[filter_scheduler] enabled_filters``: Nova does not
weigh a single remaining host, so the filter tells the controller about that
case.
"""

from collections.abc import Iterable
from typing import Any

import nova.conf
from nova.scheduler import filters
from oslo_log import log as logging

from nova_filters import plugin_options as virtco_conf
from nova_filters import recent
from nova_filters import request
from virtco import exception
from virtco import hints

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF


class CoflowFilter(filters.BaseHostFilter):
    """Passes every host, but for bad hints and required wishes."""

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        virtco_conf.register_opts(CONF)
        self._readable_requests = recent.Recent()

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any
                   ) -> list[Any]:
        """Pass the hosts that a required wish allows, or all of them.

        A launch with a bad hint gets none where ``on_bad_hint`` is ``reject``.
        Errors pass all hosts.
        """
        hosts = list(filter_obj_list)
        if not hosts:
            return hosts
        try:
            if (CONF.virtco.on_bad_hint == 'reject'
                    and not self._readable(spec_obj)):
                return []
            if request.requires_a_place(spec_obj, CONF):
                return self._allowed(spec_obj, hosts)
            if len(hosts) == 1:
                request.ask(spec_obj, hosts, CONF)
        except Exception:  # whatever it is, the server still boots
            LOG.exception('CoflowFilter passes all hosts')
        return hosts

    def _allowed(self, spec: Any, hosts: list[Any]) -> list[Any]:
        """Return the hosts that keep to a required wish, by the controller's
        word.
        """
        answer = request.ask(spec, hosts, CONF)
        if answer is None:
            return hosts
        if answer.get('refused') is not None:
            LOG.warning('Instance %s finds no valid host: %s',
                        spec.instance_uuid,
                        exception.escaped(answer.get('why', '')))
            return []
        request.keep(spec, hosts, answer)
        if answer.get('allowed') is None:
            return hosts
        allowed = set(answer['allowed'])
        return [state for state in hosts if state.host in allowed]

    def _readable(self, spec: Any) -> bool:
        """Tell whether the hint is valid, which servers of a request share: to
        read a short one may take a tenth of a second.
        """
        if request.request_id(spec) in self._readable_requests:
            return True
        found, metadata, _instance = request.read_hints(spec, CONF)
        try:
            hints.parse(found, metadata)
        except exception.HintInvalid as error:
            LOG.warning('Instance %s is rejected: %s', spec.instance_uuid,
                        exception.escaped(str(error)))
            return False
        self._readable_requests.put(request.request_id(spec))
        return True
