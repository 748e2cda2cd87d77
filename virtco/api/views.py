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

"""Hosts, members and events as the API shows them. Pure."""

from typing import Any

from virtco.db import models
from virtco.know import host_state
from virtco.know import uplinks
from virtco.table import edge_policy


def host(state: host_state.HostState, found: uplinks.Capacity,
         policy: edge_policy.EdgePolicy | None) -> dict[str, Any]:
    report = state.report
    return {
        'host': state.host, 'egress_bps': found.egress_bps,
        'ingress_bps': found.ingress_bps,
        'link_egress_bps': state.link.get('egress_bps'),
        'link_ingress_bps': state.link.get('ingress_bps'),
        'measured_egress_bps': found.measured_egress_bps,
        'measured_ingress_bps': found.measured_ingress_bps,
        'measured_age_s': found.measured_age_s,
        'rate_source': found.source,
        'background_bps': state.background.value,
        'generation': policy.generation if policy else None,
        'applied_generation': report.get('applied_generation'),
        'last_report': state.last_report,
        'coflows': [c.coflow_id for c in policy.classes] if policy else [],
        'vms': sorted({p['vm'] for p in report.get('ports', ())}),
        'health': report.get('health'), 'error': report.get('error'),
        'cpu_s': report.get('cpu_s')}


def classes(state: host_state.HostState,
            policy: edge_policy.EdgePolicy | None) -> list[dict[str, Any]]:
    """Each class of the host's policy, and what was seen of it."""
    backlogs = {c['coflow_id']: c.get('backlog_bytes')
                for c in state.report.get('coflows', ())}
    return [{
        'coflow_id': c.coflow_id, 'name': c.name, 'minor': f'1:{c.minor:x}',
        'prio': c.prio, 'rate_bps': c.rate_bps, 'ceil_bps': c.ceil_bps,
        'observed_bps': state.observed[c.coflow_id].value
        if c.coflow_id in state.observed else None,
        'backlog_bytes': backlogs.get(c.coflow_id),
        'destinations': [d.host for d in c.destinations],
    } for c in (policy.classes if policy else ())]


def member(row: models.Member) -> dict[str, Any]:
    return {'row': row.row_index, 'instance_uuid': row.instance_uuid,
            'display_name': row.display_name, 'state': row.state,
            'host': row.host, 'expires_at': row.expires_at}


def event(row: models.Event) -> dict[str, Any]:
    return {'at': row.created_at, 'kind': row.kind,
            'project_id': row.project_id, 'group_name': row.group_name,
            'group': row.group_id, 'instance_uuid': row.instance_uuid,
            'detail': row.detail}
