# SPDX-License-Identifier: Apache-2.0

"""Training jobs of public models, and clusters for them to run on.

Sizes are the models' published ones, as AICB's workloads take them (GPT-3's
table 2.1 for 6.7, 13 and 175 billion, Megatron-LM for 22, Llama for 65,
Mixtral's paper). An iteration computes 6 operations per parameter and token
and then sends; what a framework hides behind computing is not modelled.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np

from virtco import exception
from virtco import ring_and_tree
from virtco import units
from virtco.model import cluster as cluster_model
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.model import uplinks
from virtco.solver import budget
from virtco.solver import planner
from virtco.topology import resolution
from virtco.topology import tree
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import training
from virtco_tenant.hintkit import made
from virtco_tenant.hintkit import parallel

GPUS_PER_HOST = 8
#: Operations per second of a GPU: an A100 in bf16, at 45 % of its peak.
GPU_FLOPS = 0.45 * 312e12
FLOPS_PER_PARAMETER = 6
BYTES_PER_VALUE = 2
#: Hosts of a job where a file tells no number of ranks.
USUAL_HOSTS = (2, 4, 8, 16)
#: A job takes at most this share of a cluster's hosts: more are needed for
#: jobs to meet.
MOST_SHARE = 0.25
#: Rate of a host, where the topology has none.
HOST_BPS = 200e9
#: Oversubscription of a switch above hosts, where the topology has none.
OVERSUBSCRIPTION = 4.0
#: Number of jobs that do not fit after which a cluster counts as full.
MOST_MISSES = 20
#: Budget of the planner for each job, in seconds of its counter of operations.
PLANNED_S = 0.3


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """A model and the way it is trained.

    :ivar active: number of parameters that a token passes.
    :ivar tokens: number of tokens of each GPU in an iteration.
    :ivar sends: collectives of an iteration over the hosts, each with the
        bytes of one host; tensor parallelism stays inside of hosts.
    :ivar hosts: valid numbers of hosts of a job.
    """

    name: str
    active: float
    tokens: int
    sends: tuple[tuple[str, float], ...]
    hosts: tuple[int, ...]

    @property
    def compute_s(self) -> float:
        """Seconds of an iteration in which nothing is sent."""
        return FLOPS_PER_PARAMETER * self.active * self.tokens / GPU_FLOPS

    def sizes(self, n_hosts: int) -> Sequence[int]:
        """Return the valid numbers of hosts in a cluster of any size."""
        return self.hosts

    def fitting(self, n_hosts: int) -> int:
        """Return the largest valid number of hosts, at most ``n_hosts``."""
        return n_hosts

    def flows(self, n_hosts: int) -> made.Flows:
        """Return the bytes by (sender, receiver) of rings in host order."""
        flows: made.Flows = {}
        for collective, size_bytes in self.sends:
            for src, dst, sent in ring_and_tree.RING[collective](
                    range(n_hosts), size_bytes):
                flows[src, dst] = flows.get((src, dst), 0.0) + sent
        return flows


@dataclasses.dataclass(frozen=True, slots=True)
class FileKind:
    """Jobs of a workload file of AICB.

    The groups of TP, PP and EP are those of the file. A job that would take
    too much of the cluster gets a smaller DP, with the bytes of a rank as
    they are.
    """

    name: str
    workload: parallel.Workload
    compute_s: float

    @property
    def step(self) -> int:
        """Hosts that a job needs, or a multiple of them."""
        return (math.lcm(GPUS_PER_HOST, self.workload.block())
                // GPUS_PER_HOST)

    @property
    def least(self) -> int:
        """Number of hosts of the smallest job that sends between hosts."""
        return max(2, self.step)

    def sizes(self, n_hosts: int) -> Sequence[int]:
        """Return the numbers of hosts of a job, in a cluster of ``n_hosts``.
        """
        most = int(MOST_SHARE * n_hosts)
        told = (self.workload.layout().world_size // GPUS_PER_HOST
                if self.workload.tells_world() else 0)
        wanted = (told,) if told >= 2 else USUAL_HOSTS
        found = {max(self.fitting(min(hosts, most)), self.least)
                 for hosts in wanted}
        return sorted(size for size in found if size <= n_hosts) or (0,)

    def fitting(self, n_hosts: int) -> int:
        """Return the largest valid number of hosts, at most ``n_hosts``."""
        return n_hosts // self.step * self.step

    def flows(self, n_hosts: int) -> made.Flows:
        """Return the bytes of an iteration by (sender, receiver) host."""
        ranks = n_hosts * GPUS_PER_HOST
        workload = self.workload.scaled(ranks)
        return workload.flows(workload.layout(ranks), GPUS_PER_HOST)[0]


#: Workload of the jobs of a cluster.
Kind = Model | FileKind


def _data_parallel(name: str, parameters: float, tokens: int,
                   hosts: tuple[int, ...]) -> Model:
    """Build a model whose gradients are reduced over the hosts in a ring."""
    return Model(name, parameters, tokens, (
        ('all_reduce', parameters * BYTES_PER_VALUE),), hosts)


MODELS = {model.name: model for model in (
    _data_parallel('gpt-7b', 6.7e9, 4096, (2, 4)),
    _data_parallel('gpt-13b', 13e9, 4096, (4, 8)),
    _data_parallel('gpt-22b', 22e9, 8192, (4, 8)),
    # ZeRO-3: parameters are gathered twice, gradients scattered.
    Model('llama-65b', 65.2e9, 16384, (
        ('all_gather', 2 * 65.2e9 * BYTES_PER_VALUE),
        ('reduce_scatter', 65.2e9 * BYTES_PER_VALUE)), (16, 24)),
    # In both passes tokens, of hidden size 4096, go to two experts and back
    # in each of 32 layers.
    Model('mixtral-8x7b', 12.9e9, 4096, ((
        'all_to_all', GPUS_PER_HOST * 4.0 * 4096 * 4096 * 32 * 2
        * BYTES_PER_VALUE),), (2, 4)))}


def job(name: str, model: Kind, hosts: Sequence[int], start_s: float = 0.0
        ) -> training.Job:
    """Build a job on these hosts."""
    flows = model.flows(len(hosts))
    return training.Job(name, model.compute_s, demand_model.of_flows(
        (hosts[src], hosts[dst], size_bytes, 1.0)
        for (src, dst), size_bytes in flows.items()),
        GPUS_PER_HOST * len(hosts), start_s)


def small() -> tree.Topology:
    """Build the small cluster: 88 hosts in 12 unequal racks, 3 pods."""
    sizes = ((10, 8, 6, 4), (12, 8, 8, 4), (10, 8, 6, 4))
    numbers = iter(range(sum(map(sum, sizes))))
    pods = tuple(tree.Node(f'pod{p}', children=tuple(
        tree.Node(f'rack{p}{r}', tuple(
            f'host{next(numbers):03}' for _ in range(size)))
        for r, size in enumerate(racks))) for p, racks in enumerate(sizes))
    return tree.Topology((tree.Plane(roots=pods),))


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the hosts of each of its lowest switches.

    :ivar hosts: their names, in the cluster's order.
    :ivar tree: above them, as the planner takes it.
    """

    cluster: training.Cluster
    leaves: tuple[tuple[int, ...], ...]
    hosts: tuple[str, ...]
    tree: cluster_model.Tree


def site(topology: tree.Topology, oversubscription: float = OVERSUBSCRIPTION
         ) -> Site:
    """Build the site of the first plane, with hosts of :data:`HOST_BPS`.

    :param oversubscription: oversubscription of the lowest switches that tell
        no uplink.
    :raises virtco.exception.Invalid: for a plane with fewer than two hosts.
    """
    if not topology.planes or len(
            hosts := tuple(topology.planes[0].hosts())) < 2:
        raise exception.Invalid(field='topology', value='fewer',
                                limit='at least 2 hosts in its first plane')
    plane = topology.planes[0]
    number = {host: i for i, host in enumerate(hosts)}
    rates = dict.fromkeys(hosts, (HOST_BPS, HOST_BPS))
    plane = dataclasses.replace(plane, roots=tuple(
        _oversubscribed(plane, root, oversubscription)
        for root in plane.roots))
    cap_bps = np.full(2 * len(hosts), HOST_BPS)
    resolved = resolution.resolved(plane, rates, HOST_BPS)
    above = uplinks.of(resolved, hosts, *np.split(cap_bps, 2))
    return Site(training.Cluster(cap_bps, above), tuple(
        tuple(number[host] for host in node.hosts)
        for node in plane.walk() if node.hosts), hosts, resolved)


def _oversubscribed(plane: tree.Plane, node: tree.Node, factor: float
                    ) -> tree.Node:
    given = (node.uplink.is_given()
             or plane.level(node.height()).uplink.is_given())
    return dataclasses.replace(
        node, children=tuple(_oversubscribed(plane, child, factor)
                             for child in node.children),
        uplink=node.uplink if given or not node.hosts
        else tree.Uplink(oversubscription=factor))


def mix(at: Site, rng: np.random.Generator, filled: float = 0.9,
        kinds: Sequence[Kind] = ()) -> list[training.Job]:
    """Draw jobs of all kinds on a share of the hosts.

    A job takes about half of its hosts below one switch and goes on at the
    next ones, as on a cluster where others have come and gone.

    :param kinds: instead of all models.
    :raises virtco.exception.Invalid: where no job fits.
    """
    kinds = kinds or tuple(MODELS.values())
    n_hosts = sum(map(len, at.leaves))
    free = [list(leaf) for leaf in at.leaves]
    left = int(filled * sum(map(len, free)))
    jobs: list[training.Job] = []
    misses = 0
    while left >= 2 and misses < MOST_MISSES:
        kind = kinds[int(rng.integers(len(kinds)))]
        size = kind.fitting(min(left, int(rng.choice(kind.sizes(n_hosts)))))
        if size < 2:
            misses += 1
            continue
        hosts = list(_taken(free, size, int(rng.integers(len(free)))))
        left -= len(hosts)
        if len(hosts) >= 2:
            jobs.append(job(f'{len(jobs)} {kind.name}', kind, hosts,
                            float(rng.uniform(0, 2 * kind.compute_s))))
    if not jobs:
        raise exception.Invalid(field='cluster', value=f'{n_hosts} hosts',
                                limit='room for one of the jobs')
    return jobs


def _taken(free: list[list[int]], size: int, start: int) -> Iterator[int]:
    """Take free hosts, at most half of the number from one leaf at a time.

    :param free: free hosts of each leaf; taken ones are removed.
    :param size: number of hosts to take; fewer when they run out.
    :param start: leaf to begin with.
    """
    most = -(-size // 2)
    leaves = itertools.cycle(free[start:] + free[:start])
    while size and any(free):
        leaf = next(leaves)
        for _ in range(min(most, size, len(leaf))):
            yield leaf.pop(0)
            size -= 1


def placed(at: Site, jobs: Sequence[training.Job]) -> list[training.Job]:
    """Place the jobs with virtco's planner, one after another.

    The cluster is empty at first; a host takes one job.
    """
    free = dict.fromkeys(at.hosts, 1.0)
    active: list[snapshot.ActiveCoflow] = []
    found: list[training.Job] = []
    number = {host: i for i, host in enumerate(at.hosts)}
    egress_bps, ingress_bps = np.split(at.cluster.cap_bps, 2)
    for job in jobs:
        ends = np.concatenate([job.demand.src_host, job.demand.dst_host])
        before, vm = np.unique(ends, return_inverse=True)
        sent_bytes = (job.demand.bits / units.BITS_PER_BYTE).tolist()
        flows = list(zip(*np.split(vm, 2), sent_bytes, strict=True))
        plan = planner.plan(snapshot.PlacementProblem(
            tuple(cluster_model.Host(host, (free[host],), egress_bps[i],
                                     ingress_bps[i])
                  for host, i in number.items()),
            tuple(cluster_model.Vm(str(k), (1.0,))
                  for k in range(len(before))),
            (coflow_model.Coflow.from_flows(job.name, len(before), flows),),
            at.tree, tuple(active)), budget_s=PLANNED_S,
            clock=budget.Counter())
        free.update(dict.fromkeys(plan.hosts, 0.0))
        active.append(snapshot.ActiveCoflow.of(job.name, (
            (plan.hosts[src], plan.hosts[dst], size_bytes)
            for src, dst, size_bytes in flows)))
        src, dst = np.split(np.array([number[host] for host in plan.hosts],
                                     np.int64)[vm], 2)
        found.append(dataclasses.replace(job, demand=job.demand._replace(
            src_host=src, dst_host=dst)))
    return found
