# SPDX-License-Identifier: Apache-2.0

"""Options of the bounds on tenants' hints."""

from oslo_config import cfg

from virtco import hint_matrix

GROUP = 'limits'

#: The limits of one hint; ``virtco hint check`` goes by the same.
HINT = hint_matrix.Limits()

OPTS = [
    cfg.IntOpt('max_vms_per_group', default=HINT.max_vms, min=1, help="""
Largest number of VMs of one group, that is of rows of its matrices.
"""),
    cfg.IntOpt('max_flows_per_group', default=HINT.max_flows, min=1, help="""
Largest number of flows in all matrices of one group.
"""),
    cfg.IntOpt('max_groups_per_project', default=100, min=1, help="""
Largest number of live groups of one project.
"""),
    cfg.IntOpt('max_registered_per_project', default=1000, min=1, help="""
Largest number of registered matrices of one project. Together they have
2,000,000 flows at most.
"""),
    cfg.IntOpt('max_flows_per_project', default=200_000, min=1, help="""
Largest number of flows in all live groups of one project.
"""),
]
