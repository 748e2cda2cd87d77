# SPDX-License-Identifier: Apache-2.0

"""The entry point of the program that an extra serves."""

import functools

from virtco.cmd import entry

cast = functools.partial(
    entry.run, 'virtco-cast', 'virtco_tenant.cast.command', 'cast',
    'virtco-tenant')
