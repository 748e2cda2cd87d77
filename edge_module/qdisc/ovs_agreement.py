# SPDX-License-Identifier: Apache-2.0

"""Open vSwitch is told to leave the uplink's qdisc alone."""

from edge_module.ports import ovsdb


class OvsGuard:
    """A :class:`agreement.Guard` of one uplink."""

    def __init__(self, database: ovsdb.OvsDb, dev: str):
        self.database = database
        self.dev = dev
        self._seen: tuple[int, str | None] | None = None

    def ensure(self) -> None:
        # Looked at before: what changes meanwhile shows as a difference.
        changes = self.database.changes
        found = self.database.qos_type(self.dev)
        self._seen = changes, ovsdb.NOOP if found == '' else found
        self.database.ensure_noop(self.dev)

    def was_lost(self) -> bool:
        changes = self.database.changes
        if self._seen is None or self._seen[0] == changes:
            return False
        if self.database.qos_type(self.dev) != self._seen[1]:
            return True
        self._seen = changes, self._seen[1]
        return False

    def remove(self) -> bool:
        return self.database.remove_noop(self.dev)
