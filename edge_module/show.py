# SPDX-License-Identifier: Apache-2.0

"""Output of ``--show``, a table of classes, and ``--check``, differences."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import get_args
from typing import TypeVar

from edge_module import enforcer as edge_enforcer
from edge_module.classify import classified as classify
from edge_module.classify import nft_text
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import steps
from virtco import units
from virtco.wire import edge_policy

_Key = TypeVar('_Key', bound=tuple[Any, ...])


_HEAD = ('CLASS', 'COFLOW', 'PRIO', 'RATE', 'CEIL', 'OBSERVED', 'BACKLOG',
         'DROPS')


def rows(policy: edge_policy.EdgePolicy | None,
         ports: Iterable[classify.VmPort], before: htb.Snapshot,
         after: htb.Snapshot, elapsed_s: float) -> Iterator[tuple[str, ...]]:
    """Yield a row of text per class from two readings of the kernel.

    The order is the policy's; classes of no policy come last.

    :param elapsed_s: seconds between the readings.
    """
    names = {minors.LINK: 'link', minors.HOST: 'host (default)',
             minors.UNMANAGED: 'unmanaged',
             minors.UNKNOWN: '  from unknown ports'}
    here = [port for port in ports if port.is_here]
    own = minors.of_ports(port.ifindex for port in here)
    names.update((own[port.ifindex], f'  from {port.dev}') for port in here)
    seats = minors.seats(own)
    limits = (policy.unmanaged.limits if policy is not None
              and policy.unmanaged is not None else ())
    for slot, host in ((0, 'others'), *((limit.slot, limit.host)
                                        for limit in limits)):
        names[minors.of_limit(slot)] = f'  to {host}'
        names.update((minors.of_limited(slot, seats[port.ifindex]),
                      f'    from {port.dev}') for port in here)
        names[minors.of_limited(slot, minors.UNKNOWN_SEAT)] = (
            '    from unknown ports')
    names[minors.CONTROL] = 'control packets'
    names[minors.UPLINK_CONTROL] = '  seen at the uplink'
    names.update((minors.of_control(own[port.ifindex]), f'  from {port.dev}')
                 for port in here)
    for coflow in policy.classes if policy is not None else ():
        names[coflow.minor] = coflow.name or coflow.coflow_id
        names.update((child.minor, f'  to {child.host}')
                     for child in coflow.destinations)
    # Classes that left the policy come last.
    for minor in [*names, *sorted(set(after.tree) - set(names))]:
        if minor not in after.tree:
            continue
        shown, stats = after.tree[minor], after.stats[minor]
        first = before.stats.get(minor)
        sent_bytes = stats.sent_bytes - (first.sent_bytes if first else 0)
        yield (nft_text.classid(minor), names.get(minor, '(leaving)'),
               str(shown.prio),
               *map(units.format_rate, (
                   shown.rate_bps, shown.ceil_bps,
                   units.bytes_per_s_to_bps(sent_bytes / elapsed_s))),
               units.format_size(stats.backlog_bytes), str(stats.drops))


def table(shown: Iterable[tuple[str, ...]]) -> str:
    """Return rows as an aligned text table with a header.

    Tenants name coflows: an escape sequence is not one of the terminal.
    """
    lines = [_HEAD, *([''.join(char if char.isprintable() else '?'
                               for char in cell) for cell in row]
                      for row in shown)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join('  '.join(
        cell.ljust(width) for cell, width in zip(line, widths)
    ).rstrip() for line in lines)


def policy_lines(enforcer: edge_enforcer.Enforcer) -> str:
    """Return uplinks, classifier and the size of the policy, in two lines."""
    policy = enforcer.policy
    devs = ', '.join(one.uplink.dev for one in enforcer.uplinks)
    how = f'{devs} shaped by htb, classified by {enforcer.classifier.name}'
    if policy is None:
        return f'{how}\nNo policy.'
    return (f'{how}\n{policy.host}, policy {policy.generation}: '
            f'{len(policy.classes)} coflows, {len(policy.flows)} flows')


def drift(enforcer: edge_enforcer.Enforcer) -> list[str]:
    """Return a line for each difference of the kernel from the policy.

    It changes nothing. Where another root qdisc shapes an uplink, this is the
    only line.
    """
    lines: list[str] = []
    for one in enforcer.uplinks:
        snapshot = one.uplink.snapshot()
        if snapshot.foreign is not None:
            return [f'{one.uplink.dev} has {snapshot.foreign}']
        one.uplink.others = snapshot.others
        # The length of turns, and whether super-packets are cut, depend on
        # counters, not on the policy.
        wanted = {minor: dataclasses.replace(
            item, packet_bytes=have.packet_bytes, quantum_bytes=(
                have if minors.has_turns(minor) or minors.is_control(minor)
                else item).quantum_bytes)
            if (have := snapshot.tree.get(minor)) is not None else item
            for minor, item in one.desired_tree().items()}
        where = '' if one is enforcer else f'{one.uplink.dev}: '
        lines += (where + line
                  for line in class_lines(snapshot.tree, wanted))
    table = enforcer.desired_table()
    _, rates = enforcer.functions.plan(
        enforcer.desired_tree, enforcer.policy, table.entries,
        enforcer.ports or ())
    lines += (f'rate of a virtual function: {step}' for step in rates)
    return [*lines, *entry_lines(enforcer.classifier.dump(), table)]


def class_lines(have: model.Tree, want: model.Tree) -> Iterator[str]:
    """Yield a line for each difference of a tree from the wanted one."""
    update = steps.plan_update(have, want)
    for item in update.lower + update.rise:
        yield (f'class {item.minor:#x} should be {item}' if item.minor in have
               else f'missing class {item.minor:#x}')
    for minor in update.leave:
        yield f'surplus class {minor:#x}'


def entry_lines(have: classify.Table, want: classify.Table
                ) -> Iterator[str]:
    """Yield a line for each difference of a table from the wanted one."""
    for dev, _ in sorted(want.hooks - have.hooks):
        yield f'port {dev} is not classified'
    for dev, ifindex in sorted(have.hooks - want.hooks):
        yield (f'port {dev or f"({ifindex})"} is classified without '
               'need')
    names = {ifindex: dev for dev, ifindex in have.hooks | want.hooks if dev}
    for entry, stands, wanted in _different(have.entries, want.entries):
        dev = names.get(entry.ifindex, f'({entry.ifindex})')
        yield (f'{entry.src_ip} to {entry.dst_ip} port {entry.dst_port} at '
               f'{dev}: {stands} instead of {wanted}')
    for kind in get_args(classify.SmallMap):
        for key, stands, _ in _different(have.maps.get(kind, {}),
                                         want.maps.get(kind, {})):
            dev = names.get(key.number, f'({key.number})')
            if kind == 'peer':
                which = 'missing' if stands is None else 'surplus'
                yield f'{which} receiver {key.mac} of class {key.number:#x}'
                continue
            yield (f'control packets of {dev} are in another class'
                   if kind == 'control' else f'what {dev} sends unmanaged to '
                   f'{key.mac or kind} is in another class')


def _different(have: Mapping[_Key, int], want: Mapping[_Key, int]
               ) -> Iterator[tuple[_Key, int | None, int | None]]:
    """Yield the keys at which the two differ, each with both values."""
    for key in sorted(have.keys() | want.keys()):
        if have.get(key) != want.get(key):
            yield key, have.get(key), want.get(key)
