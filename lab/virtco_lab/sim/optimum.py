# SPDX-License-Identifier: Apache-2.0

"""What no schedule, and no placement, of simulated groups can be better than.
"""

from collections.abc import Sequence

import numpy as np

from virtco.model import cluster
from virtco_lab.sim import bound
from virtco_lab.sim import cloud
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import groups as group_model
from virtco_lab.sim import schemes


def least_mean_cct_s(hosts: Sequence[cluster.Host],
                     groups: Sequence[group_model.Group],
                     result: cloud.Result) -> float:
    """No schedule where the run placed the VMs has a smaller mean CCT.

    Coflows are released when they started in that run.
    """
    index = {host.name: i for i, host in enumerate(hosts)}
    cap_bps = np.array([host.egress_bps for host in hosts]
                       + [host.ingress_bps for host in hosts])
    demands = [
        cloud.demand_of(coflow, np.array([
            index[name] for name in result.hosts[group.name]]))
        for group in groups for coflow in group.coflows]
    return bound.least_mean_cct_s(
        demand_model.fabric_of(cap_bps, demands),
        np.array([row.start_s for row in result.coflows]))


def least_anywhere_s(hosts: Sequence[cluster.Host],
                     groups: Sequence[group_model.Group], seed: int = 0
                     ) -> float:
    """No placement and schedule has a smaller mean CCT.

    For groups of one coflow: alone in the datacentre none is faster than the
    planner's proven bound of its t (VirtCO Eq. 3).
    """
    scheme = schemes.get('virtco-isolated')
    return float(np.mean([
        cloud.simulate(hosts, [group], scheme, seed=seed
                       ).plans[0].lower_bound_s for group in groups]))
