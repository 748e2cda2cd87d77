# SPDX-License-Identifier: Apache-2.0

"""Typed changes and readings of the maps of ``classify.c``; needs CAP_BPF."""

from collections.abc import Collection
from collections.abc import Iterable
import time

from edge_module.classify import bpf_maps
from edge_module.privileged import operations
from edge_module.privileged import pinned

_AT_PORTS: tuple[bpf_maps.Program, ...] = ('from_vm', 'to_vm')


def bpf_missing() -> str | None:
    """Return why programs cannot classify here; None where they can."""
    return pinned.missing()


def bpf_change(hook: operations.HookName,
               changes: Collection[operations.ClassifyOperation]
               ) -> str | None:
    """Make typed changes in order; return why one was refused, or None."""
    stay = {one.ifindex for one in changes if isinstance(
        one, operations.AttachPort | operations.AttachUplink)}
    try:
        tables = pinned.Tables()
        for one in changes:
            _change(tables, hook, one, stay)
        # An upgrade that was killed left its old programs attached, too.
        tables.remove(but_these=True)
    except OSError as error:
        return str(error)
    return None


def _change(tables: pinned.Tables, hook: operations.HookName,
            change: operations.ClassifyOperation, stay: Collection[int]
            ) -> None:
    """Make one change.

    :param stay: devices that are attached, also again, by a later change.
    """
    match change:
        case operations.AddTable():
            tables.load()
        case operations.DeleteTable():
            if not tables.remove():
                raise FileNotFoundError('nothing is pinned')
        case operations.ChangeMap():
            _change_map(tables, change)
        case operations.ChangeEntries(stale, fresh):
            processors = pinned.processors()
            tables.replace('flows', [
                key for entry in stale for key in bpf_maps.flow_keys(entry)], {
                    key: bpf_maps.FLOW.pack(bpf_maps.classid(minor), 0, 0, 0)
                    * processors for entry, minor in fresh
                    for key in bpf_maps.flow_keys(entry)})
        case operations.SetRules(names, follows):
            tables.replace('settings', (), {
                bpf_maps.IFINDEX.pack(0): bpf_maps.SETTINGS.pack(
                    bpf_maps.kinds(names), follows)})
        case operations.AttachPort(_, ifindex, minor):
            tables.set_device(ifindex, {'own': bpf_maps.classid(minor)})
            if hook == 'egress':
                tables.attach(ifindex, ['by_address'])
            else:
                tables.attach(ifindex, _AT_PORTS, 'of_ports')
        case operations.DetachPort(ifindex) if ifindex not in stay:
            tables.detach(ifindex)
        case operations.AttachUplink(_, ifindex, learns):
            tables.set_device(ifindex, {'learns': learns})
            tables.attach(ifindex, ['to_wire', 'from_wire'] if learns
                          else ['to_wire'], 'of_exits')
        case operations.DetachUplink(ifindex, _) if ifindex in stay:
            tables.unlink(ifindex, ['from_wire'])
        case operations.DetachUplink(ifindex, _):
            tables.detach(ifindex)


def _change_map(tables: pinned.Tables, change: operations.ChangeMap) -> None:
    if change.kind in ('control', 'others'):
        for key in change.stale:
            tables.set_device(key.number, {change.kind: 0}, is_new=False)
        for key, minor in change.fresh:
            tables.set_device(key.number,
                              {change.kind: bpf_maps.classid(minor)})
        return
    kind = bpf_maps.KINDS[change.kind]
    tables.replace('macs', (
        bpf_maps.mac_key(kind, key) for key in change.stale), {
            bpf_maps.mac_key(kind, key): bpf_maps.CLASSID.pack(
                bpf_maps.classid(minor)) for key, minor in change.fresh})


def bpf_read(listings: Iterable[operations.MapListing]
             ) -> list[bytes | None]:
    """Read maps, packed as ``bpf_maps`` unpacks them; None for one that is
    not there.
    """
    tables = pinned.Tables()
    found: list[bytes | None] = []
    for one in listings:
        try:
            found.append(_read(tables, one))
        except FileNotFoundError:
            found.append(None)
    return found


def _read(tables: pinned.Tables, listing: operations.MapListing) -> bytes:
    match listing.what:
        case 'links':
            return b''.join(bpf_maps.LINK.pack(*one)
                            for one in tables.links())
        case 'flows':
            return b''.join(
                key + bpf_maps.FLOW_SUM.pack(*pinned.sums(value))
                for key, value in tables.items(
                    'flows', bpf_maps.FLOW_KEY.size,
                    bpf_maps.FLOW.size * pinned.processors()))
        case 'reached':
            return _read_reached(tables)
        case 'cache':
            return b''.join(value for _, value in tables.items(
                f'cache-{listing.ifindex}', bpf_maps.IFINDEX.size,
                bpf_maps.BUCKET_BYTES))
    return b''.join(key + value for key, value in tables.items(
        listing.what, *bpf_maps.SIZES[listing.what]))


def _read_reached(tables: pinned.Tables) -> bytes:
    """Return the addresses reached lately, and delete the others."""
    now_s = int(time.monotonic()) + 1
    found, gone = [], []
    for key, value in tables.items('reached', *bpf_maps.SIZES['macs']):
        at_s, = bpf_maps.CLASSID.unpack(value)
        if now_s - at_s <= bpf_maps.REACHED_S:
            found.append(key + value)
        else:
            gone.append(key)
    tables.replace('reached', gone, {})
    return b''.join(found)
