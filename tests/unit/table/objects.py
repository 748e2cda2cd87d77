# SPDX-License-Identifier: Apache-2.0

"""What policies must say, in the plainest way: object by object."""


from msgspec import structs

from tests.unit import rows
from virtco.table import coflow_table
from virtco.wire import edge_policy


def policies(schedule, coflows, remaining, links, minors, options, borrows):
    """The document of each link, by what the documentation says."""
    known = {c.coflow_id: c for c in coflows}
    rates = {(c.coflow_id, r.src_host, r.dst_host): r.rate_bps
             for c in schedule.coflows for r in rows.rates(c.flow_rates)}
    found, lefts = {}, {}
    for link in links:
        taken = minors[link.host].taken
        left = lefts[link.host] = {}
        for planned in schedule.coflows:
            coflow = known[planned.coflow_id]
            peers = {
                dst: remaining[coflow.coflow_id][src, dst]
                for src, dst in coflow.pairs if src == link.host
                and coflow_table.destination_key(coflow.coflow_id, dst)
                in taken}
            if peers and coflow.coflow_id in taken:
                left[coflow.coflow_id] = peers
    shares_bps = _shares_bps(links, lefts, options)
    for link in links:
        taken, left = minors[link.host].taken, lefts[link.host]
        entries = {}
        for coflow_id, peers in left.items():
            for key, entry in known[coflow_id].entries(link.host, {
                    dst: taken[coflow_table.destination_key(coflow_id, dst)]
                    for dst in peers}).items():
                entries.setdefault(key, entry)
        fitted = _fitted(link, left, rates, shares_bps, options)
        found[link.host] = edge_policy.EdgePolicy(
            link.host, 0, options.ttl_s, link.egress_bps, link.ingress_bps,
            link.default_rate_bps, tuple(
                _class(link, known[coflow_id], place, peers,
                       fitted[coflow_id], taken, borrows)
                for place, (coflow_id, peers) in enumerate(left.items())),
            tuple(entries.values()))
    return found


def power_of_two(number):
    """Round up."""
    return 1 << (number - 1).bit_length()


def _shares_bps(links, lefts, options):
    """Least rate of one child towards each host."""
    every = [host for left in lefts.values() for peers in left.values()
             for host in peers]
    return {link.host: link.ingress_bps * options.min_rate_fraction
            / power_of_two(every.count(link.host))
            for link in links if link.host in every}


def _fitted(link, left, rates, shares_bps, options):
    floor_bps = (link.egress_bps * options.min_rate_fraction
                 / max(1, len(left)))
    found = {coflow_id: {host: max(
        min(floor_bps / len(peers), shares_bps[host]),
        rates.get((coflow_id, link.host, host), 0.0)) for host in peers}
        for coflow_id, peers in left.items()}
    total_bps = sum(sum(peers.values()) for peers in found.values())
    limit_bps = link.egress_bps - link.default_rate_bps
    factor = limit_bps / total_bps if total_bps > limit_bps else 1.0
    return {coflow_id: {host: rate_bps * factor
                        for host, rate_bps in peers.items()}
            for coflow_id, peers in found.items()}


def _class(link, coflow, place, left, rates, taken, borrows):
    total = sum(left.values())
    rate_bps = sum(rates.values())
    return edge_policy.CoflowClass(
        coflow.coflow_id, coflow.name, taken[coflow.coflow_id], rate_bps,
        link.egress_bps if borrows else rate_bps,
        min(place, 7), tuple(edge_policy.Destination(
            host, taken[coflow_table.destination_key(coflow.coflow_id, host)],
            size / total if total > 0 else 1 / len(left), rates[host],
            link.egress_bps if borrows else rates[host],
            coflow.macs.get(host, ()))
            for host, size in sorted(left.items())))


def is_close(old, new, tolerance):
    """Whether nobody need be told; the order of classes says nothing."""
    return (
        sorted(map(structs.astuple, old.flows), key=repr)
        == sorted(map(structs.astuple, new.flows), key=repr)
        and set(old.received) == set(new.received)
        and all(_near(getattr(old, name), getattr(new, name), tolerance)
                for name in ('egress_bps', 'ingress_bps', 'default_rate_bps'))
        and [c.coflow_id for c in _by_id(old)]
        == [c.coflow_id for c in _by_id(new)]
        and all(_class_close(*pair, tolerance, new.egress_bps)
                for pair in zip(_by_id(old), _by_id(new))))


def _by_id(policy):
    return sorted(policy.classes, key=lambda c: c.coflow_id)


def _class_close(old, new, tolerance, egress_bps):
    return (
        (old.minor, old.prio, old.name) == (new.minor, new.prio, new.name)
        and [d.minor for d in old.destinations]
        == [d.minor for d in new.destinations]
        and (old.ceil_bps > old.rate_bps) == (new.ceil_bps > new.rate_bps)
        and _near(old.rate_bps, new.rate_bps, tolerance)
        and _near(old.ceil_bps, new.ceil_bps, tolerance)
        and all(_near(a.rate_bps, b.rate_bps, tolerance, new.rate_bps)
                and _near(a.ceil_bps, b.ceil_bps, tolerance, egress_bps)
                for a, b in zip(old.destinations, new.destinations)))


def _near(old, new, tolerance, scale=None):
    return abs(old - new) <= tolerance * (
        max(abs(old), abs(new)) if scale is None else scale)
