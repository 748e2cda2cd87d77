# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on the mean CCT of simulated groups."""

from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.sim import bound
from virtco_lab.sim import cloud
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import groups as group_model
from virtco_lab.sim import schemes


def least_mean_cct_s(hosts: Sequence[cluster.Host],
                     groups: Sequence[group_model.Group],
                     result: cloud.Result) -> float:
    """Return a lower bound on the mean CCT of any schedule, in seconds.

    VMs are where the run placed them, and coflows are released when they
    started in that run.
    """
    return least_placed_s(
        hosts, [(coflow, result.hosts[group.name]) for group in groups
                for coflow in group.coflows],
        [row.start_s for row in result.coflows])


def least_placed_s(hosts: Iterable[cluster.Host], placed: Iterable[
        tuple[coflow_model.Coflow, Sequence[str]]],
        release_s: Sequence[float]) -> float:
    """Return a lower bound on the mean CCT of any schedule, in seconds.

    :param placed: each coflow with the host of each of its VMs.
    :param release_s: time at which each coflow may start.
    """
    hosts = tuple(hosts)
    index = {host.name: i for i, host in enumerate(hosts)}
    return bound.least_mean_cct_s(demand_model.fabric_of(
        np.array([host.egress_bps for host in hosts]
                 + [host.ingress_bps for host in hosts]),
        [cloud.demand_of(coflow, np.array([index[name] for name in places]))
         for coflow, places in placed]), np.array(release_s))


def least_anywhere_s(hosts: Sequence[cluster.Host],
                     groups: Sequence[group_model.Group], seed: int = 0
                     ) -> float:
    """Return a lower bound on the mean CCT of any placement and schedule.

    It is for groups of one coflow: the mean of the planner's proven bounds on
    t (VirtCO Eq. 3) of each, alone in the datacentre.
    """
    scheme = schemes.get('virtco-isolated')
    return float(np.mean([
        cloud.simulate(hosts, [group], scheme, seed=seed
                       ).plans[0].lower_bound_s for group in groups]))
