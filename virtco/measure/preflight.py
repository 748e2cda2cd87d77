# SPDX-License-Identifier: Apache-2.0

"""A quick check of the hosts that a group is about to use.

A few rounds of disjoint pairs give every host readings in both directions,
each with another peer: one slow host shows in all of its readings, its peers
are cleared by their others. In *loaded* rounds all hosts of a leaf send out of
it at the same time; their sum shows what the leaf's uplink carries.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import heapq
import statistics

from virtco.measure import rounds
from virtco.wire import check as wire

#: Share of the expected rate below which a rate is poor. Half of the speed is
#: far below, noise and other traffic rarely reach it.
POOR = 0.75
#: Rounds of lone pairs, each a reading of every host in one direction or the
#: other: this many in each direction.
LONE_ROUNDS = 4
#: Loaded rounds of each leaf; their median counts.
LOADED_ROUNDS = 3
#: A leaf of fewer hosts does not load its uplink.
LEAST_LEAF = 2

Pair = rounds.Pair


class Kind(enum.StrEnum):
    """Part of the network that a finding is about."""

    EGRESS = 'host-egress'
    INGRESS = 'host-ingress'
    UPLINK = 'leaf-uplink'
    DOWNLINK = 'leaf-downlink'


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """Pairs that measure at the same time.

    :ivar loaded: several pairs are meant to share the leaves' uplinks.
    """

    pairs: tuple[Pair, ...]
    loaded: bool = False


#: Rate of each pair of a round that was measured, bit/s.
Rates = Mapping[Pair, float]


def plan(hosts: Sequence[str], leaf_of: Mapping[str, str] | None = None
         ) -> tuple[Round, ...]:
    """Plan the rounds of a check.

    :param hosts: at least two, all different.
    :param leaf_of: the leaf of each host, where the topology knows it. Leaves
        of two or more of these hosts are loaded; without a second leaf there
        is nowhere to send to.
    """
    by_leaf = rounds.by_leaf(hosts, leaf_of or {})
    order = rounds.interleaved(by_leaf.values())
    found = _lone_rounds(by_leaf)
    if len(by_leaf) > 1:
        for turn in range(LOADED_ROUNDS):
            for leaf, members in by_leaf.items():
                others = [host for host in order
                          if (leaf_of or {}).get(host) != leaf]
                if not leaf or len(members) < LEAST_LEAF or (
                        len(others) < len(members)):
                    continue
                out = rounds.paired(members, others, turn, len(others))
                found.append(Round(out, True))
                found.append(Round(tuple((b, a) for a, b in out), True))
    return tuple(found)


def _lone_rounds(by_leaf: Mapping[str, Sequence[str]]) -> list[Round]:
    """Pair each leaf's hosts, all leaves at once, so no uplink is shared.

    Hosts alone in their leaf meet each other, or a host of another leaf.
    """
    groups = [list(members) for members in by_leaf.values()
              if len(members) >= LEAST_LEAF]
    alone = [members[0] for members in by_leaf.values()
             if len(members) < LEAST_LEAF]
    if len(alone) == 1 and groups:
        groups[0].append(alone[0])
    elif alone:
        groups.append(alone)
    each = [rounds.disjoint_rounds(group) for group in groups]
    return [Round(tuple(pair for one in each if turn < len(one)
                        for pair in one[turn]))
            for turn in range(min(2 * LONE_ROUNDS, max(map(len, each))))]


def judge(planned: Sequence[Round], measured: Sequence[Rates],
          nominal_bps: Mapping[str, tuple[float, float]],
          leaf_of: Mapping[str, str] | None = None,
          uplinks_bps: Mapping[str, tuple[float, float]] | None = None
          ) -> tuple[wire.Finding, ...]:
    """List the poor hosts, then the poor leaves.

    :param planned: rounds that :func:`plan` made.
    :param measured: rates of each round.
    :param nominal_bps: egress and ingress of each host's link, without those
        whose speed nobody knows: they are compared with the others' median.
    :param uplinks_bps: out of and into each leaf, by the topology; a leaf
        that is not among them is compared with the others.
    """
    rounds_rates = list(zip(planned, measured, strict=True))
    hosts = _hosts(rounds_rates, nominal_bps, leaf_of or {})
    return (*hosts, *_leaves(rounds_rates, leaf_of or {}, uplinks_bps or {},
                             {(one.subject, Kind(one.kind))
                              for one in hosts}))


def _finding(kind: Kind, subject: str, rate_bps: float, expected_bps: float,
             evidence: list[wire.Reading]) -> wire.Finding:
    return wire.Finding(kind=kind.value, subject=subject, rate_bps=rate_bps,
                        expected_bps=expected_bps, evidence=evidence)


def _hosts(rounds_rates: Sequence[tuple[Round, Rates]],
           nominal_bps: Mapping[str, tuple[float, float]],
           leaf_of: Mapping[str, str]) -> list[wire.Finding]:
    """Judge the hosts' own links by their best readings in lone rounds."""
    lone = [(one, rates_bps) for one, rates_bps in rounds_rates
            if not one.loaded]
    sides: dict[tuple[str, Kind], list[wire.Reading]] = {}
    for _one, rates_bps in lone:
        for (src, dst), rate_bps in rates_bps.items():
            row = wire.Reading(src, dst, rate_bps)
            sides.setdefault((src, Kind.EGRESS), []).append(row)
            sides.setdefault((dst, Kind.INGRESS), []).append(row)
    # A host is as fast as its best peers let it be; two of them confirm it.
    best = {side: heapq.nlargest(2, (row.rate_bps for row in rows))[-1]
            for side, rows in sides.items()}
    usual = _usual(best)
    # A single pair at a time shares no uplink.
    is_alone = all(len(one.pairs) == 1 for one, _rates_bps in lone)
    found = []
    for (host, kind), rate_bps in sorted(best.items()):
        nominal = nominal_bps.get(host)
        expected = usual[kind]
        if nominal is not None and (is_alone or leaf_of):
            expected = nominal[kind == Kind.INGRESS]
        elif nominal is not None:
            # Uplinks that nobody knows of may slow all of them.
            expected = min(expected, nominal[kind == Kind.INGRESS])
        if rate_bps < POOR * expected:
            found.append(_finding(kind, host, rate_bps, expected,
                                  sides[host, kind]))
    return found


def _leaves(rounds_rates: Sequence[tuple[Round, Rates]],
            leaf_of: Mapping[str, str],
            uplinks_bps: Mapping[str, tuple[float, float]],
            poor: set[tuple[str, Kind]]) -> list[wire.Finding]:
    """Judge the leaves' uplinks by rates per host in loaded rounds."""
    sums: dict[tuple[str, Kind], list[tuple[float, int]]] = {}
    evidence: dict[tuple[str, Kind], list[wire.Reading]] = {}
    for one, rates_bps in rounds_rates:
        if not one.loaded or len(rates_bps) < len(one.pairs):
            continue  # part of them failed: the uplink was not loaded
        leaf, kind = _side(one, leaf_of)
        if leaf is None:
            continue
        # A slow host's loss is not the uplink's fault.
        fair_bps = [rate_bps for (src, dst), rate_bps in rates_bps.items()
                    if (src, Kind.EGRESS) not in poor
                    and (dst, Kind.INGRESS) not in poor]
        if fair_bps:
            sums.setdefault((leaf, kind), []).append(
                (sum(fair_bps), len(fair_bps)))
            evidence.setdefault((leaf, kind), []).extend(
                wire.Reading(*pair, rate_bps)
                for pair, rate_bps in rates_bps.items())
    share = {side: statistics.median(total / count for total, count in rows)
             for side, rows in sums.items()}
    usual = _usual(share)
    found = []
    for (leaf, kind), rate_bps in sorted(share.items()):
        n_hosts = max(count for _, count in sums[leaf, kind])
        expected = usual[kind]
        if (given := uplinks_bps.get(leaf)) is not None:
            # The hosts' own links may limit them before the uplink does.
            expected = min(expected if len(share) > 2 else rate_bps * 1e9,
                           given[kind == Kind.DOWNLINK] / n_hosts)
        if rate_bps < POOR * expected:
            found.append(_finding(kind, leaf, rate_bps * n_hosts,
                                  expected * n_hosts, evidence[leaf, kind]))
    return found


def _side(loaded: Round, leaf_of: Mapping[str, str]
          ) -> tuple[str | None, Kind]:
    """Return the leaf and the direction that a loaded round loads."""
    out = {leaf_of.get(src) for src, _ in loaded.pairs}
    return ((out.pop(), Kind.UPLINK) if len(out) == 1 else (
        leaf_of.get(loaded.pairs[0][1]), Kind.DOWNLINK))


def loaded_leaves(planned: Iterable[Round], leaf_of: Mapping[str, str]
                  ) -> set[str]:
    """List the leaves whose uplinks a check loads."""
    return {leaf for one in planned if one.loaded
            if (leaf := _side(one, leaf_of)[0]) is not None}


def _usual(rates_bps: Mapping[tuple[str, Kind], float]) -> dict[Kind, float]:
    """Compute the median rate of each kind."""
    by_kind: dict[Kind, list[float]] = {}
    for (_, kind), rate_bps in rates_bps.items():
        by_kind.setdefault(kind, []).append(rate_bps)
    return {kind: statistics.median(row) for kind, row in by_kind.items()}
