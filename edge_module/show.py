# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge --show``: what is configured, and what is observed."""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses

from edge_module import enforcer as edge_enforcer
from edge_module.classify import base as classify
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from virtco import units
from virtco.wire import edge_policy


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One class; rates in bits per second."""

    classid: str
    name: str
    prio: int
    rate_bps: int
    ceil_bps: int
    observed_bps: float
    backlog_bytes: int
    drops: int


def rows(policy: edge_policy.EdgePolicy | None,
         ports: Iterable[classify.VmPort], before: htb.Snapshot,
         after: htb.Snapshot, elapsed_s: float) -> Iterator[Row]:
    """Rows of two readings of the kernel, in the order of the policy."""
    names = {minors.LINK: 'link', minors.HOST: 'host (default)',
             minors.SHARED: 'shared', minors.UNMANAGED: '  unmanaged'}
    here = [port for port in ports if port.is_here]
    names.update((minors.of_port(port.ifindex), f'    from {port.dev}')
                 for port in here)
    limits = (policy.unmanaged.limits if policy is not None
              and policy.unmanaged is not None else ())
    for slot, host in ((0, 'others'), *((limit.slot, limit.host)
                                        for limit in limits)):
        names[minors.of_limit(slot)] = f'    to {host}'
        names.update((minors.of_limited(slot, port.ifindex),
                      f'      from {port.dev}') for port in here)
    names[minors.CONTROL] = '  control packets'
    names.update((minors.of_port_control(port.ifindex),
                  f'    from {port.dev}') for port in here)
    classes = policy.classes if policy is not None else ()
    names.update((minors.of_control(coflow.minor),
                  f'    of {coflow.name or coflow.coflow_id}')
                 for coflow in classes)
    for coflow in classes:
        names[coflow.minor] = coflow.name or coflow.coflow_id
        names.update((child.minor, f'  to {child.host}')
                     for child in coflow.destinations)
    # Those that are in no policy any more come last.
    for minor in [*names, *sorted(set(after.tree) - set(names))]:
        if minor not in after.tree:
            continue
        shown, stats = after.tree[minor], after.stats[minor]
        first = before.stats.get(minor)
        sent_bytes = stats.sent_bytes - (first.sent_bytes if first else 0)
        yield Row(f'1:{minor:x}', names.get(minor, '(leaving)'), shown.prio,
                  shown.rate_bps, shown.ceil_bps,
                  units.bytes_per_s_to_bps(sent_bytes / elapsed_s),
                  stats.backlog_bytes, stats.drops)


def table(shown: Iterable[Row]) -> str:
    """Aligned text."""
    lines = [('CLASS', 'COFLOW', 'PRIO', 'RATE', 'CEIL', 'OBSERVED',
              'BACKLOG', 'DROPS')]
    for row in shown:
        lines.append((
            row.classid, row.name, str(row.prio),
            units.format_rate(row.rate_bps), units.format_rate(row.ceil_bps),
            units.format_rate(row.observed_bps),
            units.format_size(row.backlog_bytes), str(row.drops)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return '\n'.join('  '.join(
        cell.ljust(width) for cell, width in zip(line, widths, strict=True)
    ).rstrip() for line in lines)


def policy_lines(enforcer: edge_enforcer.Enforcer) -> str:
    policy = enforcer.policy
    how = (f'{enforcer.uplink.dev} shaped by htb, '
           f'classified by {enforcer.classifier.name}')
    if policy is None:
        return f'{how}\nNo policy.'
    return (f'{how}\n{policy.host}, policy {policy.generation}: '
            f'{len(policy.classes)} coflows, {len(policy.flows)} flows')
