# SPDX-License-Identifier: Apache-2.0

"""Ports from Open vSwitch's database.

Nova writes ``vm-uuid`` and ``attached-mac`` into an interface's
``external_ids`` when it plugs a VM. Addresses stand nowhere in there, so
that a flow of a VM is looked for at all of its ports.
"""

from collections.abc import Callable

from edge_module.classify import base as classify
from edge_module.ports import base
from edge_module.ports import ovsdb


class OvsPorts(base.PortSource):
    """The VM interfaces of one Open vSwitch; told by events."""

    poll_s = 5.0
    is_switched = True

    def __init__(self, database: ovsdb.OvsDb):
        self.database = database

    def notify(self, callback: Callable[[], None]) -> None:
        self.database.on_change = callback

    def token(self) -> object:
        return self.database.changes

    def read(self) -> tuple[classify.VmPort, ...]:
        return tuple(classify.VmPort(vm=item.vm, dev=item.dev, mac=item.mac,
                                     notes=item.notes)
                     for item in self.database.interfaces())

    def close(self) -> None:
        self.database.close()
