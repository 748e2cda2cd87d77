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


"""Clusters of a group's VMs, as the controller tells its tenant."""

import os
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as ks_session

from virtco.client import v1
from virtco import exception


def clusters(group: str) -> dict[str, str]:
    """A cluster by each name, id and address of a member.

    The controller is at ``VIRTCO_URL``; ``OS_…`` of the environment say who
    asks.

    :param group: id or name.
    :raises virtco.exception.VirtcoException: what the controller refused.
    """
    found = v1.Client(session=_session()).clusters(group)
    return {name: member['cluster'] for member in found['members']
            if member['cluster'] is not None
            for name in (*member['addresses'], member['display_name'],
                         member['instance_uuid']) if name}


def _session() -> ks_session.Session | None:
    kind = os.environ.get('OS_AUTH_TYPE') or (
        'password' if os.environ.get('OS_AUTH_URL') else 'none')
    if kind == 'none':
        return None
    try:
        loader: Any = loading.get_plugin_loader(kind)
        auth = loader.load_from_options(**{
            option.dest: value for option in loader.get_options()
            if (value := os.environ.get(f'OS_{option.dest.upper()}'))})
    except ks_exceptions.ClientException as error:
        raise exception.Invalid(
            field='OS_AUTH_TYPE', value=kind,
            limit=f'set with what it needs ({error})') from error
    return ks_session.Session(auth=auth)
