# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Classification by a BPF program at clsact's ingress of the VM's ports.

One hash map holds the whole table; its entries are set one by one, and no
moment in between is wrong: classes exist before an entry names them and until
after none does any more, an entry is replaced whole, and what is new or
changed is set before what is stale goes. A packet finds its class of before
or its class of after, never none.

Map and program are pinned, under the number of the network namespace, so that
the next start finds them, with their counters, by name.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import errno
import functools
import itertools
import os
import socket
from typing import Any

from edge_module.classify import base
from edge_module.classify import bpf_program
from edge_module.privileged import protocol
from edge_module.qdisc import clsact
from edge_module.qdisc import htb
from edge_module.qdisc import wire
from virtco import exception

_GONE = (errno.ENOENT, errno.EINVAL, errno.ENODEV)
_Classes = tuple[int, int]


@functools.cache
def _program() -> bytes:
    return bpf_program.build()


class BpfClassifier(base.Classifier):
    """See the module. ``replace`` works from what it last knew or read.

    :param bpf_dir: a directory on a BPF file system.
    """

    name = 'bpf'

    def __init__(self, kernel: protocol.Kernel, bpf_dir: str):
        self.kernel = kernel
        self.bpf_dir = bpf_dir
        # Packed key: minors of data and of control packets.
        self.known: dict[bytes, _Classes] | None = None
        self.hooks: dict[int, clsact.Hook] = {}
        # Devices whose qdisc is ours: the filter says so, and may be lost.
        self.owned: set[int] = set()
        self.program_id = 0

    @property
    def directory(self) -> str:
        """Where the pins are; edge modules of other namespaces have others."""
        namespace = os.stat('/proc/thread-self/ns/net').st_ino
        return os.path.join(self.bpf_dir, f'net-{namespace}')

    def replace(self, table: base.Table) -> int:
        ifindexes = dict(table.hooks)
        wanted = {bpf_program.pack_key(key, ifindexes[key.dev]):
                  (minor, table.control.get(minor, 0))
                  for key, minor in table.entries.items()}
        if len(wanted) > bpf_program.MOST_ENTRIES:
            raise exception.Invalid(
                field='entries of the classification', value=len(wanted),
                limit=f'at most {bpf_program.MOST_ENTRIES} with '
                      '[edge] classifier = bpf')
        try:
            return self._change(wanted, set(ifindexes.values()))
        except BaseException:
            self.known = None
            raise

    def _change(self, wanted: dict[bytes, _Classes], ports: set[int]) -> int:
        if self.known is None:
            self._open()
        have = self.known or {}
        fresh = {key: classes for key, classes in wanted.items()
                 if have.get(key) != classes}
        stale = [key for key in have if key not in wanted]
        new = sorted(port for port in ports if port not in self.hooks
                     or self.hooks[port].program_id != self.program_id)
        gone = sorted(set(self.hooks) - ports)
        if fresh:
            self._call('bpf_update', b''.join(fresh),
                       bpf_program.pack_values(fresh.values()), len(fresh))
        self._attach(new)
        if stale:
            self._call('bpf_delete', stale)
        for port in gone:
            self._detach(self.hooks.pop(port))
        self.known = wanted
        return len(fresh) + len(stale) + len(new) + len(gone)

    def _call(self, name: str, *args: Any) -> Any:
        """Make a privileged call on our pins."""
        try:
            return getattr(self.kernel, name)(self.directory, *args)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EPERM:
                why += (' (it needs CAP_BPF and CAP_NET_ADMIN, and [edge] '
                        'bpf_dir on a BPF file system)')
            raise exception.KernelRefused(
                what='change the classification', count=1,
                why=why) from error

    def _open(self) -> None:
        self.program_id = self._call(
            'bpf_open', _program(), bpf_program.KEY_BYTES,
            bpf_program.VALUE_BYTES, bpf_program.MOST_ENTRIES)
        self.known = {key: classes for key, (classes, _) in self._read()}
        self.hooks = {hook.ifindex: hook for hook in self._read_hooks()}
        self.owned |= {hook.ifindex for hook in self.hooks.values()
                       if hook.owns_qdisc}

    def _read(self) -> Iterator[tuple[bytes,
                                      tuple[_Classes, base.Counted]]]:
        found = self._call('bpf_read', bpf_program.KEY_BYTES,
                           bpf_program.VALUE_BYTES)
        if found is None:
            return iter(())
        keys, values = found
        size = bpf_program.KEY_BYTES
        return zip((keys[at:at + size] for at in range(0, len(keys), size)),
                   bpf_program.read_values(values), strict=True)

    # -- ports -------------------------------------------------------------

    def _qdiscs(self) -> set[int]:
        """Devices with a qdisc that our filter can hang on."""
        request = wire.dump_request(wire.RTM_GETQDISC, 0)
        return {qdisc.ifindex for qdisc
                in map(wire.read_qdisc, self.kernel.tc_dump(request))
                if clsact.has_hooks(qdisc)}

    def _filters(self, ifindex: int) -> list[bytes]:
        """All filters of a device's hooks, ours and others'."""
        try:
            return list(itertools.chain.from_iterable(
                self.kernel.tc_dump(request)
                for request in clsact.dump_filters(ifindex)))
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return []

    def _read_hooks(self) -> Iterator[clsact.Hook]:
        for ifindex in self._qdiscs():
            yield from filter(None, map(clsact.read_hook,
                                        self._filters(ifindex)))

    def _attach(self, ports: list[int]) -> None:
        if not ports:
            return
        shared = self._qdiscs()
        for port in ports:
            messages = []
            if port not in shared:
                messages.append(clsact.add_qdisc(port))
                self.owned.add(port)
            owned = port in self.owned
            messages.append(clsact.attach(port, owned))
            failed = self._call('bpf_attach', _program(), messages)
            if failed and failed[0][1] != errno.ENODEV:  # it just went away
                raise exception.KernelRefused(
                    what='attach the classifier', count=len(failed),
                    why=os.strerror(failed[0][1]))
            self.hooks[port] = clsact.Hook(port, self.program_id, owned)

    def _detach(self, hook: clsact.Hook) -> None:
        """Our filter goes, and our qdisc unless others use it now."""
        htb.send(self.kernel, [clsact.detach(hook.ifindex)],
                 'detach the classifier', _GONE)
        self.owned.discard(hook.ifindex)
        if hook.owns_qdisc and not self._filters(hook.ifindex):
            htb.send(self.kernel, [clsact.delete_qdisc(hook.ifindex)],
                     'delete the qdisc of the classifier', _GONE)

    # -- looking -----------------------------------------------------------

    def was_lost(self, devices: Set[int], tables: bool) -> bool:
        return not devices.isdisjoint(self.hooks)

    def forget(self) -> None:
        self.known = None

    def _entries(self, names: Mapping[int, str]
                 ) -> Iterator[tuple[base.Key, _Classes, base.Counted]]:
        for packed, (classes, seen) in self._read():
            ifindex, key = bpf_program.read_key(packed)
            # An entry of a device that is gone belongs to no port.
            dev = names.get(ifindex, f'({ifindex})')
            yield (base.Key(dev, key.src_ip, key.dst_ip, key.dst_port),
                   classes, seen)

    def counted(self) -> dict[base.Key, base.Counted]:
        return {key: seen for key, _, seen
                in self._entries(dict(socket.if_nameindex()))}

    def dump(self) -> tuple[base.Table, dict[base.Key, base.Counted]]:
        entries, control, counted = {}, {}, {}
        names = dict(socket.if_nameindex())
        for key, (minor, of_control), seen in self._entries(names):
            entries[key], counted[key] = minor, seen
            if of_control:
                control[minor] = of_control
        program_id = self._call('bpf_find', _program())
        hooks = {(names[hook.ifindex], hook.ifindex)
                 for hook in self._read_hooks() if hook.ifindex in names
                 and hook.program_id == program_id}
        return base.Table(frozenset(hooks), entries, control), counted

    def remove(self) -> bool:
        hooks = list(self._read_hooks())
        for hook in hooks:
            self._detach(hook)
        self.known, self.hooks = None, {}
        return self._call('bpf_remove') or bool(hooks)
