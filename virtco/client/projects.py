# SPDX-License-Identifier: Apache-2.0

"""Names of projects, as keystone knows them."""

import urllib.parse

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import plugin
from keystoneauth1 import session as ks_session

from virtco import exception

#: Keystone where the caller logged in.
KEYSTONE = {'service_type': 'identity', 'interface': plugin.AUTH_INTERFACE,
            'min_version': '3', 'max_version': '3.latest'}


def find(session: ks_session.Session | None, name_or_id: str) -> str:
    """Find the id of a project by its id or its unique name.

    The text is taken as an id where keystone does not list projects: without
    a login, or for users without that right.

    :raises virtco.exception.NotFound:
    :raises virtco.exception.Invalid: for a name of several projects.
    """
    if session is None:
        return name_or_id
    try:
        # An id first: somebody may name a project as the id of another one.
        one = session.get(
            '/projects/' + urllib.parse.quote(name_or_id, safe=''),
            endpoint_filter=KEYSTONE, raise_exc=False)
        if one.status_code == 200:
            return str(one.json()['project']['id'])
        found = session.get('/projects', endpoint_filter=KEYSTONE,
                            params={'name': name_or_id}).json()['projects']
    except (ks_exceptions.ClientException, LookupError, ValueError):
        return name_or_id
    if not found and one.status_code != 404:
        return name_or_id
    if not found:
        raise exception.NotFound(what='Project', id=name_or_id)
    if len(found) > 1:
        raise exception.Invalid(
            field='--project', value=name_or_id, limit='an id of the projects '
            'of this name: ' + ', '.join(one['id'] for one in found))
    found_id: str = found[0]['id']
    return found_id
