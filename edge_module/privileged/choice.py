# SPDX-License-Identifier: Apache-2.0

"""Who makes the privileged calls: this process, or a helper."""

import os
import pwd
from typing import cast

from oslo_privsep import capabilities

from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import kernel_calls as kernel
from virtco import exception


def may_administer() -> bool:
    """Return whether this process holds CAP_NET_ADMIN."""
    effective, _, _ = capabilities.get_caps()
    return capabilities.CAP_NET_ADMIN in effective


def open_kernel(user: str, helper_user: str) -> protocol.Kernel:
    """Return the kernel's calls, with as few privileges as possible.

    :param user: user that a process started by root becomes, while a helper
        makes the calls; empty to stay the same user.
    :param helper_user: user that the helper becomes; empty for ``user``.
    :raises virtco.exception.Invalid: for a user that does not exist.
    """
    if user and os.geteuid() == 0:
        for field, name in ('user', user), ('helper_user', helper_user):
            try:
                pwd.getpwnam(name or user)
            except KeyError as error:
                raise exception.Invalid(
                    field=f'[edge] {field}', value=name,
                    limit='a user of this machine') from error
        from edge_module.privileged import guarded
        guarded.start_and_drop(user, helper_user or user)
        return cast(protocol.Kernel, guarded)
    return kernel
