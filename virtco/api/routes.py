# SPDX-License-Identifier: Apache-2.0

"""Every path of the API, in one place."""

from typing import Any

import falcon
from oslo_config import cfg

from virtco import app
from virtco.api import context
from virtco.api import health
from virtco.api import versions
from virtco.api.handlers import advice
from virtco.api.handlers import coflows
from virtco.api.handlers import hosts
from virtco.api.handlers import measure
from virtco.api.handlers import operations
from virtco.api.handlers import placements
from virtco.api.handlers import profiles
from virtco.api.handlers import projects
from virtco.api.handlers import topology

#: Of each path; doc/source/api is made from it.
RESOURCES: dict[str, type] = {
    '/': versions.Versions,
    '/v1': versions.Versions,
    '/v1/placements/{instance_uuid}': placements.Placement,
    '/v1/placements/{instance_uuid}/explanation': placements.Explanation,
    '/v1/advice': placements.Advice,
    '/v1/plans': placements.Plans,
    '/v1/coflows': coflows.Coflows,
    '/v1/coflows/{coflow_id}': coflows.Coflow,
    '/v1/groups/{group}/coflows': coflows.Announcements,
    '/v1/groups/{group}/tree': advice.Tree,
    '/v1/groups/{group}/mapping': advice.Mapping,
    '/v1/groups/{group}/clusters': advice.Clusters,
    '/v1/projects': projects.Projects,
    '/v1/projects/{project_id}': projects.Project,
    '/v1/events': coflows.Events,
    '/v1/profiles': profiles.Profiles,
    '/v1/profiles/{group}': profiles.Profile,
    '/v1/apps': profiles.Apps,
    '/v1/apps/{name}': profiles.App,
    '/v1/hosts': hosts.Hosts,
    '/v1/hosts/{host}': hosts.Hosts,
    '/v1/hosts/{host}/drain': hosts.Drain,
    '/v1/hosts/{host}/policy': hosts.Policy,
    '/v1/hosts/{host}/report': hosts.Report,
    '/v1/hosts/{host}/probes': hosts.Probes,
    '/v1/distributor': hosts.Distributor,
    '/v1/measurements': hosts.Measurements,
    '/v1/rates': hosts.Rates,
    '/v1/checks': measure.Checks,
    '/v1/checks/{check_id}': measure.Check,
    '/v1/matrices/{kind}': measure.Matrices,
    '/v1/performers': measure.Performers,
    '/v1/probes': hosts.Probing,
    '/v1/probes/{probe_id}': hosts.Probe,
    '/v1/settings': operations.Settings,
    '/v1/settings/history': operations.History,
    '/v1/topology': topology.Topology,
    '/v1/topology/{plane}': topology.Plane,
    '/v1/capacity': topology.Capacity,
    '/v1/notifications': operations.Notifications,
    '/health': operations.Health,
    '/metrics': operations.Metrics,
}


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts,
        rooms: app.App) -> None:
    both = rooms, context.Authorizer(conf)
    for path, resource in RESOURCES.items():
        given: tuple[Any, ...] = both
        if resource is versions.Versions:
            given = (path == '/',)
        elif resource in (operations.Health, operations.Metrics):
            given = (health.Document(rooms),)
        app.add_route(path, resource(*given))
