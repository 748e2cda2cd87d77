# SPDX-License-Identifier: Apache-2.0

"""Classification by Open vSwitch's own flows (kernel datapath).

Its action ``set_queue:N`` sets a packet's priority to class 1:N+1, whether or
not Open vSwitch knows of a queue, which is how our own HTB is fed. Our flows
stand in front of table 0 of the bridge that a VM is plugged into, set queue
and a register, and send the packet through table 0 again: the register keeps
it from them then, and it meets whatever flows are there as if ours were not.
They carry a cookie of their own; no other flow is ever touched.

A TCP packet without data is known by its length only, which an action asks
for: a second flow, by coflow, moves short ones to the class of its control
packets. Data of up to 40 bytes come along, within that class's bound.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import os
import re
import socket
from typing import NamedTuple
from typing import TYPE_CHECKING

from edge_module.classify import base
from edge_module.privileged import protocol
from edge_module.tcplan import minors
from virtco import exception
from virtco.wire import edge_policy

if TYPE_CHECKING:
    from edge_module.ports import ovsdb

COOKIE = 0x76697274636F0001  # "virtco" in ASCII, and a version
OURS = f'cookie={COOKIE:#x}/-1'
# The highest priority is left to those who drop what must not pass.
_PORT_PRIORITY, _PAIR_PRIORITY, _REST_PRIORITY = 65534, 65533, 65532
# The register holds the class of the coflow's control packets, a bit of
# packets too long for it, and a bit of those that are in it.
_FRESH = 'reg15=0'
_ACTIONS = 'load:0x1->NXM_NX_REG15[],resubmit(,0)'
_ASK = ('load:{:#x}->NXM_NX_REG15[0..15],'
        'check_pkt_larger({})->NXM_NX_REG15[16],resubmit(,0)')
_ASKED = re.compile(r'load:(0x[0-9a-f]+)->NXM_NX_REG15\[0\.\.15\]')
_MOVED = 'load:0x1->NXM_NX_REG15[17],resubmit(,0)'
# Frame, IPv4 and TCP with all options; IPv6 with 40 bytes of them.
_CONTROL_BYTES = 94
# Bundles need the last one of them.
VERSIONS = 'OpenFlow10,OpenFlow13,OpenFlow14'
_QUEUE = re.compile(r'set_queue:(\d+)')
_MOST_MINOR = 0xF000  # Open vSwitch's highest queue is 0xefff
_WITH_PORT = {'tcp', 'udp', 'tcp6', 'udp6'}


class Flow(NamedTuple):
    """What one of our flows matches; ``kind`` is empty for the rest.

    ``control`` is the class of the flow that control packets meet after the
    one of their pair, 0 for all others.
    """

    bridge: str
    ofport: int
    kind: str = ''
    src_ip: str = ''
    dst_ip: str = ''
    dst_port: int = 0
    control: int = 0

    def match(self) -> str:
        """As ovs-ofctl takes it."""
        if self.control:
            return (f'table=0,priority={_PORT_PRIORITY},'
                    f'reg15={self.control:#x},in_port={self.ofport},'
                    f'{self.kind}')
        priority = (_REST_PRIORITY if not self.kind else _PORT_PRIORITY
                    if self.dst_port else _PAIR_PRIORITY)
        parts = [f'table=0,priority={priority},{_FRESH}',
                 f'in_port={self.ofport}']
        if self.kind:
            name = 'ipv6' if self.kind.endswith('6') else 'nw'
            parts += [self.kind, f'{name}_src={self.src_ip}',
                      f'{name}_dst={self.dst_ip}']
        if self.dst_port:
            parts.append(f'tp_dst={self.dst_port}')
        return ','.join(parts)


class Classes(NamedTuple):
    """Minors of the class of data and of that of control packets, or 0."""

    minor: int
    control: int = 0


def _actions(flow: Flow, classes: Classes) -> str:
    queue = f'set_queue:{classes.minor - 1},'
    if flow.control:
        return queue + _MOVED
    if classes.control:
        return queue + _ASK.format(classes.control, _CONTROL_BYTES)
    return queue + _ACTIONS


def _flows(key: base.Key, place: 'ovsdb.Place') -> Iterator[Flow]:
    six = '6' if key.is_ipv6 else ''
    kinds = ('tcp' + six, 'udp' + six) if key.dst_port else (
        'ipv6' if six else 'ip',)
    for kind in kinds:
        yield Flow(place.bridge, place.ofport, kind, key.src_ip, key.dst_ip,
                   key.dst_port)


def wanted_flows(table: base.Table, places: Mapping[str, 'ovsdb.Place']
                 ) -> dict[Flow, Classes]:
    """The classes of every flow that a table asks for.

    :raises virtco.exception.Invalid: for a class that no queue can name.
    """
    wanted: dict[Flow, Classes] = {}
    for dev, ifindex in table.hooks:
        minor = minors.of_port(ifindex)
        control = table.control.get(minor, 0)
        wanted[Flow(*places[dev])] = Classes(minor, control)
        if control:
            wanted.update((Flow(*places[dev], kind, control=control),
                           Classes(control)) for kind in ('tcp', 'tcp6'))
    for key, minor in table.entries.items():
        place, control = places[key.dev], table.control.get(minor, 0)
        if minor > _MOST_MINOR:
            raise exception.Invalid(
                field='minor of a class', value=minor,
                limit=f'at most {_MOST_MINOR} with [edge] classifier = '
                      'openflow')
        wanted.update((flow, Classes(minor, control))
                      for flow in _flows(key, place))
        if control:
            kind = 'tcp6' if key.is_ipv6 else 'tcp'
            wanted[Flow(*place, kind, control=control)] = Classes(control)
    return wanted


def read_flow(bridge: str, line: str
              ) -> tuple[Flow, Classes, base.Counted] | None:
    """One line of ``dump-flows``; None for what is no flow of ours."""
    head, _, actions = line.partition(' actions=')
    queue = _QUEUE.match(actions)
    words = re.split(r',\s*', head.strip())
    fields = dict(word.partition('=')[::2] for word in words)
    if queue is None or fields.get('cookie') != f'{COOKIE:#x}':
        return None
    kind = next((word for word in words if word in {'ip', 'ipv6', *_WITH_PORT}
                 ), '')
    name = 'ipv6' if kind.endswith('6') else 'nw'
    asked = _ASKED.search(actions)
    return (Flow(bridge, int(fields['in_port']), kind,
                 base.address(fields.get(f'{name}_src', '')),
                 base.address(fields.get(f'{name}_dst', '')),
                 int(fields.get('tp_dst', 0)),
                 int(fields.get('reg15', '0'), 0)),
            Classes(int(queue[1]) + 1, int(asked[1], 16) if asked else 0),
            base.Counted(int(fields['n_bytes']), int(fields['n_packets'])))


class OpenflowClassifier(base.Classifier):
    """See the module. ``replace`` works from what it last knew or read.

    :param run_dir: where ovs-vswitchd has its sockets.
    """

    name = 'openflow'

    def __init__(self, kernel: protocol.Kernel, database: 'ovsdb.OvsDb',
                 run_dir: str):
        self.kernel = kernel
        self.database = database
        self.run_dir = run_dir
        self.known: dict[Flow, Classes] | None = None
        self._seen: object = None

    def build_table(self, flows: Iterable[edge_policy.FlowEntry],
                    ports: Iterable[base.VmPort],
                    control: Mapping[int, int] | None = None) -> base.Table:
        places = self.database.places()
        return super().build_table(
            flows, [port for port in ports if port.dev in places], control)

    def replace(self, table: base.Table) -> int:
        # Also when it fails: whoever asked tries again by himself.
        self._seen = self._look()
        wanted = wanted_flows(table, self.database.places())
        if self.known is None:
            self.known = {flow: classes for flow, classes, _ in self._read()}
        have, self.known = self.known, None
        changed = 0
        for bridge in sorted({flow.bridge for flow in (*have, *wanted)}):
            changed += self._change(bridge, have, wanted)
        self.known = wanted
        return changed

    def _change(self, bridge: str, have: Mapping[Flow, Classes],
                wanted: Mapping[Flow, Classes]) -> int:
        """One bundle: no packet sees half of it."""
        commands = [f'delete_strict {OURS},{flow.match()}'
                    for flow in have
                    if flow.bridge == bridge and flow not in wanted]
        commands += [
            f'add cookie={COOKIE:#x},{flow.match()},'
            f'actions={_actions(flow, classes)}'
            for flow, classes in wanted.items()
            if flow.bridge == bridge and have.get(flow) != classes]
        if commands:
            self._ofctl(bridge, ['--bundle', 'add-flows'], ['-'],
                        '\n'.join(commands) + '\n')
        return len(commands)

    def _ofctl(self, bridge: str, command: list[str], arguments: list[str],
               text: str = '') -> str:
        code, output, errors = self.kernel.ofctl_run(
            ['-O', VERSIONS, '--no-names', *command,
             f'unix:{self._socket(bridge)}', *arguments], text)
        if code:
            raise exception.KernelRefused(
                what=f'change the flows of {bridge}', count=1,
                why=errors.strip()[:400])
        return output

    def _socket(self, bridge: str) -> str:
        return os.path.join(self.run_dir, f'{bridge}.mgmt')

    def _read(self) -> Iterator[tuple[Flow, Classes, base.Counted]]:
        for bridge in self._bridges():
            yield from self._read_bridge(bridge)

    def _bridges(self) -> list[str]:
        """Those that ovs-vswitchd could make: one may lack its datapath."""
        return [bridge for bridge in self.database.bridges()
                if os.path.exists(self._socket(bridge))]

    def _read_bridge(self, bridge: str
                     ) -> Iterator[tuple[Flow, Classes, base.Counted]]:
        listing = self._ofctl(bridge, ['dump-flows'], [OURS])
        return filter(None, (read_flow(bridge, line)
                             for line in listing.splitlines()))

    # -- looking -----------------------------------------------------------

    def _look(self) -> object:
        """Differs once ovs-vswitchd was started anew, or has moved a port."""
        started = []
        for bridge in self.database.bridges():
            try:
                status = os.stat(self._socket(bridge))
                started.append((bridge, status.st_ino, status.st_ctime_ns))
            except OSError:  # it is about to start
                started.append((bridge, 0, 0))
        return started, self.database.places()

    def was_lost(self, devices: Set[int], tables: bool) -> bool:
        return self._seen is not None and self._look() != self._seen

    def forget(self) -> None:
        self.known = None

    def dump(self) -> tuple[base.Table, dict[base.Key, base.Counted]]:
        devs = {tuple(place): dev
                for dev, place in self.database.places().items()}
        hooks, entries, control = set(), {}, {}
        counted: dict[base.Key, base.Counted] = {}
        for flow, classes, seen in self._read():
            if flow.control:
                continue
            dev = devs.get((flow.bridge, flow.ofport),
                           f'({flow.bridge} {flow.ofport})')
            if classes.control:
                control[classes.minor] = classes.control
            if not flow.kind:
                hooks.add((dev, _ifindex(dev)))
                continue
            key = base.Key(dev, flow.src_ip, flow.dst_ip, flow.dst_port)
            before = counted.get(key, base.Counted(0, 0))
            entries[key] = classes.minor
            counted[key] = base.Counted(
                before.sent_bytes + seen.sent_bytes,
                before.sent_packets + seen.sent_packets)
        return base.Table(frozenset(hooks), entries, control), counted

    def remove(self) -> bool:
        found = [bridge for bridge in self._bridges()
                 if any(self._read_bridge(bridge))]
        for bridge in found:
            self._ofctl(bridge, ['del-flows'], [OURS])
        self.known = self._seen = None
        return bool(found)


def _ifindex(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except OSError:
        return 0
