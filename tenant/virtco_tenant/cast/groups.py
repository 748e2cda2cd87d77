# SPDX-License-Identifier: Apache-2.0

"""A cast's calls to the controller: clusters, and coflow to announce."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import threading
from typing import Any

from virtco import exception
from virtco.client import v1
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import group as group_wire
from virtco_tenant import session

#: Seconds between announcements of the bytes left, and after the last one
#: until the controller drops the coflow.
RENEW_S, EXPIRES_S = 60.0, 180.0
_LOOK_S = 0.5

#: Bytes by (names of sender, names of receiver); None: not known yet.
Left = Mapping[tuple[frozenset[str], frozenset[str]], float] | None


class Group:
    """A group of VMs at the controller of ``VIRTCO_URL``.

    Credentials are the variables ``OS_…`` of the environment.

    :param group: id or name.
    :raises virtco.exception.VirtcoException: when the controller refuses.
    """

    def __init__(self, group: str):
        self._client = v1.Client(session=session.of_environment())
        found = self._client.call(group_wire.CLUSTERS, group)
        self._id: str = found.group_id
        self._names = [set(filter(None, (*member.addresses,
                                         member.display_name,
                                         member.instance_uuid)))
                       for member in found.members]
        self._clusters = [member.cluster for member in found.members]

    def clusters(self) -> dict[str, str]:
        """Return the cluster by name, id and address of each member."""
        return {name: cluster for names, cluster in zip(
            self._names, self._clusters) if cluster for name in names}

    def announce(self, name: str, left: Left) -> list[str]:
        """Announce the bytes left to send; return the ids of the coflow.

        Flows of members outside the group are left out.

        :param name: name of the coflow.
        """
        rows = {name: row for row, names in enumerate(self._names)
                for name in names}
        flows = []
        for pair, size_bytes in (left or {}).items():
            src, dst = (next((rows[name] for name in names if name in rows),
                             None) for names in pair)
            if src is not None and dst is not None and src != dst:
                flows.append([src, dst, size_bytes])
        if not flows:
            return []
        return [coflow.id for coflow in self._client.call(
            coflow_wire.ANNOUNCE, self._id, name,
            {'n': len(self._names), 'flows': flows}, EXPIRES_S).coflows]

    def end(self, coflow_id: str) -> None:
        self._client.call(coflow_wire.CHANGE, coflow_id, state='done')


@contextlib.contextmanager
def announced(group: Group, name: str, left: Callable[[], Left],
              tell: Callable[[str], None]) -> Iterator[None]:
    """Keep the cast's coflow announced to the controller within a context.

    A thread does so: the cast neither waits for the controller nor fails with
    it.

    :param left: returns the bytes left to send now.
    :param tell: called with the first error, once.
    """
    stop = threading.Event()
    known: list[str] = []
    troubles: list[str] = []

    def attempt(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except (exception.VirtcoException, OSError) as error:
            if not troubles:
                troubles.append(str(error))
                tell(f'The controller does not schedule this cast: {error}')
            return None

    def run() -> None:
        while not stop.wait(_LOOK_S):
            now = left()
            if now:
                known[:] = attempt(group.announce, name, now) or known
                if stop.wait(RENEW_S):
                    break

    thread = threading.Thread(target=run, name='announce', daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(EXPIRES_S)
        for coflow_id in known:
            attempt(group.end, coflow_id)
