# SPDX-License-Identifier: Apache-2.0

"""Open vSwitch's database: its ports, and peace about the uplink's qdisc.

Nova writes ``vm-uuid`` and ``attached-mac`` into an interface's
``external_ids`` when it plugs a VM. Addresses stand nowhere in there, so that
a flow of a VM is looked for at all of its ports.

The library keeps a replica of five tables up to date by itself, also over a
restart of the database; everything here reads that replica.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from typing import Any
from typing import NamedTuple

from oslo_log import log as logging
from ovs.db import idl as ovs_idl
from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.backend.ovs_idl import idlutils
from ovsdbapp.backend.ovs_idl import transaction as transactions
from ovsdbapp.schema.open_vswitch import impl_idl

from edge_module.classify import classified as classify
from edge_module.ports import kinds
from edge_module.ports import port_source as base
from virtco import exception

LOG = logging.getLogger(__name__)

# Columns that are announced, by table: Open vSwitch writes counters of all
# interfaces every five seconds, which would be read each time.
_COLUMNS = {'Open_vSwitch': ('other_config', 'external_ids', 'next_cfg'),
            'Bridge': ('name', 'datapath_type', 'ports'),
            'Port': ('name', 'interfaces', 'qos', 'tag', 'other_config',
                     'external_ids'),
            'Interface': ('name', 'type', 'external_ids'),
            'QoS': ('type', 'external_ids')}
_TUNNELS = ('geneve', 'gre', 'stt', 'vxlan')
# Neutron's name for the end of a sub-port in the bridge of its trunk.
_SUB_PORT = 'spt-'
# ``physnet1:br-ex,…``; of one chassis of several with its name behind it.
_MAPPINGS = 'ovn-bridge-mappings'
_TIMEOUT_S = 5
NOOP = 'linux-noop'
HTB = 'linux-htb'
_OWNER = 'virtco-edge'


class _Replica(connection.OvsdbIdl):
    """Calls back on every change."""

    changed: Callable[[], None] = staticmethod(lambda: None)

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        self.changed()


class _Api(impl_idl.OvsdbIdl):
    """The library's class would have one connection for all of its objects,
    also for those made after it was closed.
    """

    ovsdb_connection: Any = None  # hides the property of the library

    def create_transaction(self, check_error: bool = False,
                           log_errors: bool = True, **_: Any
                           ) -> transactions.Transaction:
        """Make one that does not wait until ovs-vswitchd has followed: the
        replica has no row of that.
        """
        return transactions.Transaction(self, self.ovsdb_connection,
                                        check_error=check_error,
                                        log_errors=log_errors)


class OvsDb(base.PortSource):
    """The VM interfaces of one Open vSwitch, over a connection that is made
    when it is first needed.

    :ivar changes: number of changes that were announced so far.
    :raises virtco.exception.OvsUnavailable: from every method, while the
        database cannot be reached.
    """

    is_switched = True

    def __init__(self, address: str):
        self.address = address
        self.changes = 0
        self._on_change: Callable[[], None] = lambda: None
        self._api: _Api | None = None
        self._starting: _Api | None = None

    def notify(self, callback: Callable[[], None]) -> None:
        self._on_change = callback

    def token(self) -> object:
        return self.changes

    def connected(self) -> _Api:
        """Return the connection, made at the first call.

        :raises virtco.exception.OvsUnavailable:
        """
        if self._api is None:
            try:
                # A try that runs out of time keeps the part that came: on a
                # slow machine the whole database may take more than one.
                if self._starting is None:
                    self._starting = self._new_api()
                self._starting.start_connection(
                    self._starting.ovsdb_connection)
            except Exception as error:  # the library raises many kinds
                raise exception.OvsUnavailable(
                    address=self.address, why=str(error)) from error
            self._api, self._starting = self._starting, None
            LOG.info('Connected to Open vSwitch at %s', self.address)
        return self._api

    def _new_api(self) -> _Api:
        helper = idlutils.get_schema_helper(self.address, 'Open_vSwitch')
        for table, columns in _COLUMNS.items():
            helper.register_columns(table, [*columns])
        replica = _Replica(self.address, helper)
        replica.changed = self._changed
        return _Api(connection.Connection(replica, _TIMEOUT_S), start=False)

    def _changed(self) -> None:
        self.changes += 1
        self._on_change()

    def close(self) -> None:
        if self._api is not None:
            self._api.ovsdb_connection.stop(_TIMEOUT_S)
            self._api = None

    def locked(self) -> contextlib.AbstractContextManager[Any]:
        """Return a lock under which the replica stays as it is.

        After a lost connection it is emptied and filled again, row by row.
        """
        lock: contextlib.AbstractContextManager[Any] = (
            self.connected().ovsdb_connection.lock)
        return lock

    def rows(self, table: str) -> list[ovs_idl.Row]:
        """Return the rows of a table, to be read under the lock."""
        return list(self.connected().idl.tables[table].rows.values())

    def read(self) -> tuple[classify.VmPort, ...]:
        """Return the interfaces that Nova or Neutron marked as a VM's, and
        the sub-ports of their trunks.
        """
        with self.locked():
            return tuple(sorted(self._ports(), key=lambda item: (
                item.dev, item.mac)))

    def _ports(self) -> Iterator[classify.VmPort]:
        bridges = [(bridge, [(port, item) for port in bridge.ports
                             for item in port.interfaces])
                   for bridge in self.rows('Bridge')]
        offloads = any(row.other_config.get('hw-offload') == 'true'
                       for row in self.rows('Open_vSwitch'))
        routes = any(item.name.startswith('qr-')
                     for _, ends in bridges for _, item in ends)
        for bridge, ends in bridges:
            # The bridge of a trunk has one VM's.
            sub_ports = [item.external_ids.get('attached-mac', '')
                         for _, item in ends
                         if item.name.startswith(_SUB_PORT)]
            has_tunnels = _has_tunnels(bridge)
            for port, item in ends:
                ids = item.external_ids
                if 'vm-uuid' not in ids:
                    continue
                notes = kinds.of_switch(
                    item.type, offloads, routes, kinds.is_tagged(
                        bridge.datapath_type,
                        port.other_config.get('network_type', ''),
                        bool(port.tag), has_tunnels))
                for mac in (ids.get('attached-mac', ''), *sub_ports):
                    yield classify.VmPort(ids['vm-uuid'], item.name, mac=mac,
                                          notes=notes)

    def place_of(self, dev: str) -> tuple[ovs_idl.Row, ovs_idl.Row] | None:
        """Find bridge and port of a device; None where no bridge has it."""
        with self.locked():
            return next((
                (bridge, port) for bridge in self.rows('Bridge')
                for port in bridge.ports
                if any(item.name == dev for item in port.interfaces)), None)

    def datapath_of(self, dev: str) -> str | None:
        """Return a device's datapath, ``system`` or ``netdev``.

        None when no bridge has the device.
        """
        place = self.place_of(dev)
        return place and (place[0].datapath_type or 'system')

    def is_ovns(self, bridge: ovs_idl.Row) -> bool:
        """Return whether OVN reaches a physical network by a bridge."""
        return bridge.name in {
            pair.rpartition(':')[2] for row in self.rows('Open_vSwitch')
            for key, value in row.external_ids.items()
            if key.startswith(_MAPPINGS) for pair in value.split(',')}


def _has_tunnels(bridge: ovs_idl.Row) -> bool:
    """Return whether all that leaves a bridge is encapsulated.

    OVN has tunnels beside a provider network, whose port it names, and does
    not tell which network a VM is in.
    """
    return not any(
        'ovn-localnet-port' in port.external_ids for port in bridge.ports
    ) and any(peer.type in _TUNNELS for port in bridge.ports
              for peer in port.interfaces)


class _Shaping(NamedTuple):
    """Who shapes an uplink.

    :ivar kind: type of the QoS row, empty without one.
    :ivar sharer: other program that may; None: nobody.
    :ivar is_ovns: whether OVN writes the row.
    """

    port: str
    kind: str
    sharer: str | None
    is_ovns: bool


class OvsGuard:
    """Open vSwitch is told to leave the qdisc of one uplink alone.

    :ivar sharer: name of the program, such as OVN, that may shape the uplink
        by classes beside ours; None: nobody.
    """

    def __init__(self, database: OvsDb, dev: str):
        self.database = database
        self.dev = dev
        self.sharer: str | None = None
        self._seen: tuple[int, _Shaping | None] | None = None

    def ensure(self) -> None:
        """Have Open vSwitch leave the uplink's qdisc alone.

        Without a QoS row it removes foreign qdiscs when it restarts. With one
        that is not its own, OVN since 23.06 makes no limit at the uplink.

        :raises virtco.exception.QdiscConflict: when it shapes the uplink by
            another qdisc than HTB.
        """
        # Read before the change, so that later changes show as a difference.
        changes = self.database.changes
        found = self._shaping()
        self._seen = changes, found
        if found is None:
            return
        port, kind, self.sharer, is_ovns = found
        if kind not in ('', NOOP, HTB):
            raise exception.QdiscConflict(dev=self.dev,
                                          qdisc=f'Open vSwitch QoS {kind}')
        if is_ovns and self.remove():
            self._seen = changes, found._replace(kind='')
        elif not (kind or is_ovns):
            self._seen = changes, found._replace(kind=NOOP)
            api = self.database.connected()
            with api.transaction(check_error=True) as transaction:
                made = transaction.add(api.db_create(
                    'QoS', type=NOOP, external_ids={'owner': _OWNER}))
                transaction.add(api.db_set('Port', port, ('qos', made)))
            LOG.info('Open vSwitch leaves the qdisc of %s alone (%s)',
                     self.dev, NOOP)

    def remind(self) -> None:
        """Have Open vSwitch set the limits of its own row again.

        It sets them when its configuration changes only, and cannot while an
        HTB that it did not make comes between two of its steps.
        """
        found = self._seen and self._seen[1]
        if not found or found.kind != HTB:
            return
        with self.database.locked():
            row, *_ = self.database.rows('Open_vSwitch')
            uuid, count = row.uuid, row.next_cfg + 1
        api = self.database.connected()
        with api.transaction(check_error=True) as transaction:
            transaction.add(api.db_set('Open_vSwitch', uuid,
                                       ('next_cfg', count)))

    def was_lost(self) -> bool:
        """Return whether the QoS changed since :meth:`ensure`; cheap."""
        changes = self.database.changes
        if self._seen is None or self._seen[0] == changes:
            return False
        if self._shaping() != self._seen[1]:
            return True
        self._seen = changes, self._seen[1]
        return False

    def _shaping(self) -> _Shaping | None:
        """Return who shapes the uplink; None without a port.

        Up to 23.03 ovn-controller shapes the interface with
        ``ovn-egress-iface`` by itself, under a row of type ``linux-noop``;
        later ones write a row of type ``linux-htb``.
        """
        with self.database.locked():
            place = self.database.place_of(self.dev)
            if place is None:
                return None
            bridge, port = place
            is_ovns = self.database.is_ovns(bridge)
            sharer, kind = None, ''
            for row in port.qos:
                kind = row.type
                if kind == HTB or row.external_ids.get('owner') != _OWNER:
                    sharer = ('OVN' if is_ovns
                              else f'Open vSwitch (QoS {kind})')
            if any(item.external_ids.get('ovn-egress-iface') == 'true'
                   for item in port.interfaces if item.name == self.dev):
                sharer = 'OVN'
            return _Shaping(port.name, kind, sharer, is_ovns)

    def remove(self) -> bool:
        """Undo :meth:`ensure`; return False when there was nothing."""
        _, port = self.database.place_of(self.dev) or (None, None)
        if port is None or not port.qos or (
                port.qos[0].external_ids.get('owner') != _OWNER):
            return False
        api = self.database.connected()
        with api.transaction(check_error=True) as transaction:
            transaction.add(api.db_clear('Port', port.name, 'qos'))
            transaction.add(api.db_destroy('QoS', port.qos[0].uuid))
        return True
