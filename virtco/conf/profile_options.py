# SPDX-License-Identifier: Apache-2.0

"""Options of the history of bytes that tenants send."""

from oslo_config import cfg

GROUP = 'profiles'

OPTS = [
    cfg.IntOpt('keep_days', default=28, min=0, max=3650, help="""
Number of days for which the bytes of each pair of VMs of a group are kept, by
the hour; 0 keeps nothing. A pair takes up to 1 kB per day.

``virtco profile show``, ``virtco hint from-observed`` and ``virtco:app`` need
it. A tenant sees its own groups only.
"""),
]
