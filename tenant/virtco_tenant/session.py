# SPDX-License-Identifier: Apache-2.0

"""The session of the cloud's user, from the variables OS_…"""

import os
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as ks_session

from virtco import exception


def of_environment() -> ks_session.Session | None:
    """Make the session of the cloud's user; None without authentication.

    :raises virtco.exception.Invalid: something that it needs is not set.
    """
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
            limit=f'a way to log in with its options ({error})') from error
    return ks_session.Session(auth=auth,
                              verify=os.environ.get('OS_CACERT') or True)
