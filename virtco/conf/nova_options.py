# SPDX-License-Identifier: Apache-2.0

"""Options of the comparison with Nova."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = 'nova'
# Options of keystoneauth that find Nova in the catalogue, and those of TLS.
_USED = ('valid_interfaces', 'region_name', 'endpoint_override', 'cafile',
         'certfile', 'keyfile', 'insecure')


def auth_opts() -> list[Any]:
    """Return the options of keystoneauth for a session and for finding Nova.
    """
    found = [opt for opt in loading.get_session_conf_options()
             + loading.get_adapter_conf_options()
             if opt.dest in _USED]
    cfg.set_defaults(found, valid_interfaces=['internal', 'public'])
    return loading.get_auth_common_conf_options() + found


OPTS = [
    cfg.FloatOpt('compare_interval_s', default=300, min=1, max=86400, help="""
Time between two comparisons of the model with Nova, in seconds.

A comparison lists the servers of each project that has a group, and corrects
the model for lost notifications: servers that were deleted, moved, shelved or
could not be built. It also reads the bandwidth limits of the servers' ports
from Neutron, if the service catalogue has it; those of servers that were built
or moved are read within five seconds, and all of them every 30 s. It needs
``auth_type`` and a user who may list the servers and ports of all projects;
without ``auth_type`` there is no comparison.

Related options:

* ``[nova] auth_type`` and the other options of keystoneauth in this group
* ``[nova] endpoint_override``, where the service catalogue has no Nova
"""),
    cfg.URIOpt('placement_endpoint_override', schemes=['http', 'https'],
               help="""
URL of OpenStack's placement, if the service catalogue has none.

The controller asks placement for the free resources of the hosts when an
operator asks for a plan, with the account of ``[nova] auth_type``.
"""),
    cfg.FloatOpt('feedback_interval_s', default=60, min=0, max=86400, help="""
Time between two rounds that write the results of hints to the metadata of the
tenants' servers, in seconds; 0 writes nothing.

Servers get the metadata ``virtco.group``, ``virtco.row``,
``virtco.planned_cct_s``, ``virtco.measured_cct_s`` and ``virtco.why``, the
result in one line. Servers with a hint that was ignored, or that were placed
without a plan within the last hour, get ``virtco.why`` alone; 100 servers per
round. The account of ``[nova] auth_type`` needs the right to change the
metadata of all servers.
"""),
] + auth_opts()
