# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Every path of the API, in one place."""

from typing import Any

import falcon
from oslo_config import cfg

from virtco.api import context
from virtco.api.handlers import coflows
from virtco.api.handlers import hosts
from virtco.api.handlers import operations
from virtco.api.handlers import placements
from virtco.api.handlers import projects
from virtco import app


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts,
        rooms: app.App) -> None:
    authorizer = context.Authorizer(conf)
    waiting = hosts.Waiting(conf)
    both = (rooms, authorizer)
    for path, resource in {
        '/v1/placements/{instance_uuid}': placements.Placement(*both),
        '/v1/plans': placements.Plans(*both),
        '/v1/coflows': coflows.Coflows(*both),
        '/v1/coflows/{coflow_id}': coflows.Coflow(*both),
        '/v1/projects': projects.Projects(*both),
        '/v1/projects/{project_id}': projects.Project(*both),
        '/v1/events': coflows.Events(*both),
        '/v1/hosts': hosts.Hosts(*both),
        '/v1/hosts/{host}': hosts.Hosts(*both),
        '/v1/hosts/{host}/policy': hosts.Policy(*both, waiting),
        '/v1/hosts/{host}/report': hosts.Report(*both),
        '/v1/hosts/{host}/probes': hosts.Probes(*both, waiting),
        '/v1/distributor': hosts.Distributor(*both),
        '/v1/measurements': hosts.Measurements(*both),
        '/v1/rates': hosts.Rates(*both),
        '/v1/settings': operations.Settings(*both),
        '/v1/notifications': operations.Notifications(*both),
        '/health': operations.Health(rooms),
        '/metrics': operations.Metrics(rooms),
    }.items():
        app.add_route(path, resource)
