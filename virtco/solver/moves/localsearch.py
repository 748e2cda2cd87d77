# SPDX-License-Identifier: Apache-2.0

"""Drives the kernel: orders of coflows, chunks, restarts, the clock."""

import random
import types
from typing import Any

import numpy as np

from virtco import compiled
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import kernel
from virtco.solver.starts import candidates

MAX_MOVE_NODES = 64
#: kernel.BLOCK.
BLOCK_PORTS = 16
#: More prefixes than this are merged, with weights, while searching.
MAX_LEVELS = 24
#: Moves, and chunks of them, between two looks at the order of coflows.
CHUNK_MOVES = 20000
CHUNKS_OF_ORDER = 12
#: Calls of numpy to begin and end a chunk, and how often they go over the
#: levels' ports.
CHUNK_CALLS = 100
CHUNK_CELLS = 10
#: Temperatures, relative to the objective, that a run of one coflow begins
#: and ends with. On 24 hard instances of 18 x 40, in 400,000 moves, the mean
#: ratio to the best known was 1.021 at 0.1 and 0.003, 1.058 at 0.3 and 0.01,
#: 1.026 at 0.1 and 0.001.
HOT = 0.1
COLD = 0.003
POLISH_HOT = 0.02
ORDER_NOISE = 1.0
#: Backlog of a port without bandwidth.
DEAD_PORT_S = 1e12
#: With several coflows the small ones freeze at lower temperatures only. The
#: minimum cut has the same: begun at 0.3 and ended at 0.01 it made no
#: difference to launches (mean ratio 1.007 on 42 instances of 18 x 40).
HOT_OF_MANY = 0.3
COLD_OF_MANY = 0.001


#: Moves per node of a minimum cut. With 300 the mean ratio of launches was
#: 1.007 instead of 1.004 (42 instances of 18 x 40 at 0.25 s), by chance as
#: likely as not.
CUT_MOVES = 500


#: Level of each own coflow, base loads, floors and weights of the levels.
Levels = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def min_cut(inst: instances.Instance, seed: int, budget: budgets.Budget
            ) -> np.ndarray | None:
    """Place with the fewest bytes between hosts, a strong baseline.

    It clusters along the heaviest traffic and refines by annealing on the
    total of cut bytes. It does not look at bandwidth, coflows or time.
    """
    start = candidates.cluster(inst, budget)
    if start is None:
        start = candidates.best_fit(inst)
    if start is None:
        return None
    search = Searcher(inst, snapshot.Objective.ISOLATED, seed)
    return search.least_cut(start, CUT_MOVES * inst.n_nodes, budget)


class Searcher:
    """Local search over one instance; holds buffers and the generator.

    :param code: the kernel, another one for comparison.
    """

    def __init__(self, inst: instances.Instance,
                 objective: snapshot.Objective, seed: int,
                 code: types.ModuleType = kernel):
        self.inst = inst
        self.objective = objective
        self.kernel = code
        self.random = np.array([_mix(seed)], dtype=np.int64)
        self.order_random = random.Random(seed)
        self.movable = inst.movable
        self.can_move = len(inst.movable) > 0 and inst.n_hosts > 1
        self.moves_done = 0
        #: Time per move in the last run, by the clock of its budget.
        self.s_per_move = 0.0
        self.s_per_byte = instances.finite(inst.s_per_byte)
        self.adjacency = _adjacency(inst)
        self.ahead = objectives.Ahead.of(inst, objective)

    def is_single(self) -> bool:
        """Return whether the objective is t itself: one level, no order."""
        return (self.objective == snapshot.Objective.ISOLATED
                or (len(self.inst.arcs) <= 1
                    and not len(self.inst.running)))

    def evaluate(self, assign: np.ndarray) -> objectives.Evaluation:
        return objectives.evaluate(self.inst, assign, self.objective)

    def anneal(self, start: np.ndarray, moves: int, *, power: int = 5,
               hot: float = HOT, floor_s: float = 0.0,
               budget: budgets.Budget | None = None
               ) -> tuple[np.ndarray, objectives.Evaluation]:
        """Anneal from start; the best seen by the exact objective.

        The run is cut into chunks, between which the order of coflows is
        taken anew.

        :param floor_s: stop when the objective reaches it.
        """
        budget = budget or budgets.unlimited()
        current = start.copy()
        best, value = start.copy(), self.evaluate(start)
        if not self.can_move:
            return best, value
        if self.s_per_move:
            # A run that is cut short ends while it is hot.
            moves = int(min(moves, budget.left_s() / self.s_per_move))
        chunks, cold = max(1, moves // CHUNK_MOVES), COLD
        if not self.is_single():
            cold = COLD_OF_MANY
            chunks = max(CHUNKS_OF_ORDER, chunks)
        ratio = cold / hot
        since_s, done = budget.spent_s(), self.moves_done
        for chunk in range(chunks):
            if not budget.in_time() or value.objective_s <= floor_s:
                break
            noise = ORDER_NOISE * max(0.0, 1 - 2 * chunk / chunks)
            levels = self.levels(
                current, noise if hot >= HOT_OF_MANY else 0.0)
            graph, state = self._prepare(
                current, self.s_per_byte, levels,
                price_s=self._price_s(current))
            self._run(graph, state, power, max(1, moves // chunks),
                      hot * ratio ** (chunk / chunks),
                      hot * ratio ** ((chunk + 1) / chunks), budget,
                      floor_s - self._before_s(levels))
            budget.spend_numpy(CHUNK_CALLS, CHUNK_CELLS * levels[1].size)
            current = np.array(state.assign)
            found = np.array(state.best)
            found_value = self.evaluate(found)
            if found_value.key < value.key:
                best, value = found, found_value
        self.s_per_move = (budget.spent_s() - since_s) / max(
            1, self.moves_done - done)
        return best, value

    def _before_s(self, levels: Levels) -> float:
        """Sum up the prefix CCTs that are in no level, in s.

        They are those of the running coflows before the first own one.
        """
        if self.objective == snapshot.Objective.ISOLATED:
            return 0.0
        n_levels = int(levels[3].sum())
        n_before = len(self.inst.running) + len(self.inst.arcs) - n_levels
        return float(self.inst.running_prefix_s[:n_before].sum())

    def _price_s(self, assign: np.ndarray) -> np.ndarray:
        """Price a byte per port by the wait of coflows to come, (P,).

        It rises with the own bytes; all are charged what those of ``assign``
        cost on average.
        """
        price_s = np.zeros(len(self.s_per_byte))
        if self.ahead.rate:
            fabric = slice(self.inst.n_fabric)
            own_s = objectives.own_loads(self.inst, assign).sum(axis=0)[
                fabric] * self.s_per_byte[fabric]
            usual_s = (own_s ** 2).sum() / max(own_s.sum(), 1e-300)
            backlog_s = np.minimum(self.ahead.backlog_s, DEAD_PORT_S)
            price_s[fabric] = self.s_per_byte[fabric] * self.ahead.rate * (
                2 * backlog_s + usual_s)
        return price_s

    def least_cut(self, start: np.ndarray, moves: int,
                  budget: budgets.Budget) -> np.ndarray:
        """Anneal on the total bytes between hosts alone."""
        n_ports, n_hosts = len(self.s_per_byte), self.inst.n_hosts
        # Every byte between hosts once, whatever the port.
        once = np.where(np.arange(n_ports) < n_hosts, 1.0, 0.0)
        graph, state = self._prepare(
            start, once, _one_level(len(self.inst.arcs), n_ports))
        self._run(graph, state, 0, moves, HOT_OF_MANY, COLD_OF_MANY,
                  budget)
        return np.array(state.best)

    def polish(self, start: np.ndarray, moves: int,
               budget: budgets.Budget) -> np.ndarray:
        """Use less of the network at the same objective.

        Anneals on the sum of all ports' times while no level's maximum may
        rise: what is left is for the coflows to come.
        """
        if not self.inst.arcs:
            return start.copy()
        levels = self.levels(start)
        times_s = self._loads(start, levels) * self.s_per_byte
        ceiling = np.maximum(times_s.max(axis=1), levels[2])
        graph, state = self._prepare(
            start, self.s_per_byte, levels, ceiling * (1 + 1e-12))
        self._run(graph, state, 0, moves, POLISH_HOT, COLD_OF_MANY, budget)
        return np.array(state.best)

    def _run(self, graph: kernel.Graph, state: kernel.State, power: int,
             moves: int, hot: float, cold: float, budget: budgets.Budget,
             enough_s: float = 0.0) -> None:
        """Run this many moves while there is time, if any can be made."""
        if not self.can_move:
            return
        best_s, done = np.inf, 0
        while done < moves and best_s > enough_s and budget.units() > 0:
            best_s = self.kernel.anneal(
                graph, state, power, moves - done,
                hot * (cold / hot) ** (done / moves), cold, best_s, enough_s,
                budget.chunk())
            done += state.counts[2]
            budget.spend(state.counts[3])
        self.moves_done += done
        self.random[0] = state.random[0]

    def levels(self, assign: np.ndarray, noise: float = 0.0) -> Levels:
        """Find the level of each own coflow, base loads, floors and weights.

        :param noise: noise of the own CCTs' logarithms while ordering: a run
            keeps its order, so it must also try others than its start's.
        """
        inst = self.inst
        n_active = len(inst.running)
        if self.objective == snapshot.Objective.ISOLATED:
            return _one_level(len(inst.arcs), len(inst.s_per_byte))
        loads = objectives.own_loads(inst, assign)
        own_s = objectives.own_cct_s(inst, loads)
        if noise > 0:
            own_s = own_s * np.exp([self.order_random.gauss(0.0, noise)
                                    for _ in own_s])
        order = objectives.mrtf_order(inst, own_s)
        ranks = np.flatnonzero(order >= n_active)
        first = int(ranks.min(initial=len(order)))
        level = np.zeros(len(inst.arcs), dtype=np.int64)
        level[order[ranks] - n_active] = ranks - first
        level, ends, weight = _merge_levels(level, len(order) - first)
        seen = np.cumsum(order < n_active)[first + ends]
        base = np.array([inst.running.first(n) for n in seen.tolist()])
        return level, base, inst.floor_s[seen], weight

    def _loads(self, assign: np.ndarray, levels: Levels) -> np.ndarray:
        """Compute the bytes per level and port, shape (K, P)."""
        level, base, _floor, _weight = levels
        loads = base.copy()
        for first, row in zip(level, objectives.own_loads(self.inst, assign)):
            loads[first:] += row
        return loads

    def _prepare(self, assign: np.ndarray, s_per_byte: np.ndarray,
                 levels: Levels, ceiling: np.ndarray | None = None,
                 price_s: np.ndarray | None = None
                 ) -> tuple[kernel.Graph, kernel.State]:
        """Build the kernel's graph and its state for an assignment."""
        inst, (level, base, floor, weight) = self.inst, levels
        if ceiling is None:
            ceiling = np.full(len(weight), np.inf)
        if price_s is None:
            price_s = np.zeros(len(s_per_byte))
        start, node, coflow, out, into = self.adjacency
        graph = self.kernel.Graph(**compiled.views(
            n=inst.n_nodes, n_hosts=inst.n_hosts,
            n_resources=inst.demand.shape[1],
            n_uplinks=len(inst.uplinks), n_rows=len(inst.port_out),
            n_ports=len(s_per_byte), n_levels=len(weight),
            pipe=int(inst.pipe), movable=self.movable,
            demand=inst.demand.ravel(),
            allowed=inst.allowed.astype(np.uint8).ravel(),
            slot=inst.slot.ravel(),
            n_own=inst.demand.shape[1] - len(inst.sharing),
            port_out=inst.port_out.ravel(), adj_start=start, adj_node=node,
            adj_level=level[coflow],
            adj_out=out, adj_in=into,
            s_per_byte=s_per_byte, floor_s=floor, ceiling_s=ceiling,
            weight=weight, price_s=price_s,
            fixed_s=float(np.maximum(
                (base * s_per_byte).max(axis=1, initial=0.0), floor)
                @ weight + base[-1] @ price_s)))
        free = inst.left(inst.room, assign, inst.demand).ravel()
        return graph, self.kernel.State(**_state(
            graph, assign, free, self._loads(assign, levels), self.random))


def _one_level(n_coflows: int, n_ports: int) -> Levels:
    """Put all coflows at one level, with nothing on the ports before them."""
    return (np.zeros(n_coflows, dtype=np.int64), np.zeros((1, n_ports)),
            np.zeros(1), np.ones(1))


def _mix(seed: int) -> int:
    return (seed * 2654435761 + 0x9E3779B9) % 0xFFFFFFFF or 1


def _merge_levels(level: np.ndarray, n_levels: int
                  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge levels to MAX_LEVELS at most; the last of each run stands for it.

    Levels at which an own coflow enters are kept, since merging them would
    put a coflow's bytes where they are not.

    :returns: level of each own coflow, the last level of each run, and how
        many it has.
    """
    ends = np.arange(n_levels)
    if n_levels > MAX_LEVELS:
        ends = np.unique(np.concatenate([
            np.linspace(0, n_levels - 1, MAX_LEVELS).astype(np.int64),
            level, np.maximum(level - 1, 0)]))
    weight = np.diff(np.concatenate([[-1], ends])).astype(float)
    return np.searchsorted(ends, level), ends, weight


def _adjacency(inst: instances.Instance) -> tuple[np.ndarray, ...]:
    """Build CSR rows of (neighbour, coflow, bytes out, bytes in) per node."""
    n, n_coflows = inst.n_nodes, len(inst.arcs)
    keys, rows, sizes = [], [], []
    for c, (src, dst, size_bytes) in enumerate(inst.arcs):
        keys += [(src * n + dst) * n_coflows + c,
                 (dst * n + src) * n_coflows + c]
        rows += [np.zeros(len(src), np.int64), np.ones(len(src), np.int64)]
        sizes += [size_bytes, size_bytes]
    found, entry = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]),
                             return_inverse=True)
    both = np.zeros((2, len(found)))
    np.add.at(both, (np.concatenate([np.zeros(0, np.int64), *rows]), entry),
              np.concatenate([np.zeros(0), *sizes]))
    pair, coflow = np.divmod(found, n_coflows)
    start = np.searchsorted(pair, np.arange(n + 1) * n)
    return start.astype(np.int64), pair % n, coflow, *both


def _state(g: kernel.Graph, assign: np.ndarray, free: np.ndarray,
           load: np.ndarray, generator: np.ndarray) -> dict[str, Any]:
    """Allocate the kernel's working arrays for an assignment."""
    kk, ports = g.n_levels, g.n_ports
    # Movable nodes by host, and the place of each among those of its host.
    nodes = np.array(g.movable)
    nodes = nodes[np.argsort(assign[nodes], kind='stable')]
    n_members = np.bincount(assign[nodes], minlength=g.n_hosts)
    place = np.full(g.n, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes)) - np.repeat(
        np.cumsum(n_members) - n_members, n_members)
    members = np.zeros((g.n_hosts, g.n), dtype=np.int64)
    members[assign[nodes], place[nodes]] = nodes
    blocks = -(-ports // BLOCK_PORTS) * kk

    def ints(size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)

    return compiled.views(
        assign=assign.astype(np.int64).copy(),
        best=assign.astype(np.int64).copy(), free=free,
        load=load.T.ravel(), power_sum=np.zeros(kk),
        power_top=np.zeros(kk), delta=np.zeros(kk), scale=np.ones(kk),
        top_s=np.zeros(kk), top_port=ints(kk), block_stale=ints(blocks),
        block_s=np.zeros(blocks), block_port=ints(blocks),
        members=members.ravel(), n_members=n_members, place=place,
        touched=ints(ports),
        mark=ints(ports), saved=np.zeros(ports * kk),
        level_work=np.zeros(4 * kk), move_node=ints(MAX_MOVE_NODES),
        move_from=ints(MAX_MOVE_NODES),
        move_to=ints(MAX_MOVE_NODES), priced_s=np.zeros(2),
        counts=ints(4),
        random=generator.copy())
