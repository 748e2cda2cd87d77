# SPDX-License-Identifier: Apache-2.0

"""Client of Neutron's API that reads the bandwidth limits of VMs' ports."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from keystoneauth1 import session as ks_session
from oslo_config import cfg

from virtco import units
from virtco.follow import nova

#: The most that a VM sends, and receives, bit/s; None: no limit.
Limits = tuple[float | None, float | None]
UNLIMITED: Limits = (None, None)
_WAYS = ('egress', 'ingress')
#: VMs of one request: their ids fit in any server's bound of a URL.
_VMS_AT_ONCE = 50
_FIELDS = ['id', 'device_id', 'qos_policy_id', 'qos_network_policy_id']


class Neutron:
    """Neutron's API as an operator's account sees it.

    :param session: logged in.
    """

    def __init__(self, conf: cfg.ConfigOpts, session: ks_session.Session):
        self._adapter = nova.adapter_of(conf, session, 'network', None)

    @nova.translated()
    def policies_bps(self) -> dict[str, Limits]:
        """Return the limits of the QoS policies that have any, by uuid.

        :raises virtco.exception.NovaUnavailable: when Neutron does not answer
            or has no QoS.
        """
        found = {policy['id']: _limits_bps(policy['rules'])
                 for policy in nova.listed(self._adapter,
                                           '/v2.0/qos/policies', 'policies')}
        return {uuid: limits_bps for uuid, limits_bps in found.items()
                if any(limits_bps)}

    @nova.translated()
    def limits_bps(self, policies_bps: Mapping[str, Limits], project_id: str,
                   only: Sequence[str] = ()) -> dict[str, Limits]:
        """Return the limits of a project's VMs that have any, by uuid.

        A VM may use all of its ports, so their limits add up.

        :param policies_bps: answer of :meth:`policies_bps`; without any, no
            port is asked for.
        :param only: uuids of the VMs to ask for; empty: all.
        :raises virtco.exception.NovaUnavailable: when Neutron does not answer.
        """
        if not policies_bps:
            return {}
        of_vm = collections.defaultdict(list)
        for start in range(0, max(1, len(only)), _VMS_AT_ONCE):
            some = only[start:start + _VMS_AT_ONCE]
            which: dict[str, Any] = {'device_id': some} if some else {}
            for port in nova.listed(
                    self._adapter, '/v2.0/ports', 'ports', fields=_FIELDS,
                    project_id=project_id, **which):
                of_vm[port['device_id']].append(policies_bps.get(
                    port.get('qos_policy_id')
                    or port.get('qos_network_policy_id') or '', UNLIMITED))
        return {vm: found for vm, ports in of_vm.items()
                if any(found := (_total(egress for egress, _ in ports),
                                 _total(ingress for _, ingress in ports)))}


def _limits_bps(rules: list[dict[str, Any]]) -> Limits:
    """Return the least limit of a policy's rules in each direction."""
    egress_bps, ingress_bps = (min(
        (units.kilobits_per_s_to_bps(rule['max_kbps']) for rule in rules
         if rule['type'] == 'bandwidth_limit'
         and rule.get('direction', _WAYS[0]) == way), default=None)
        for way in _WAYS)
    return egress_bps, ingress_bps


def _total(limits_bps: Iterable[float | None]) -> float | None:
    total_bps = sum(map(units.number, limits_bps))
    return total_bps if total_bps < math.inf else None
