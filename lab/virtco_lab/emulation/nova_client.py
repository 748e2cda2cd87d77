# SPDX-License-Identifier: Apache-2.0

"""Client of Nova's REST API for a tenant of the emulated datacentre."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

import requests

from virtco import exception
from virtco_lab.emulation import patience

IMAGE = '155d900f-4e14-4e4c-a73d-069cbf4541e6'
MICROVERSION = '2.90'
POLL_S = 0.3
# Least time in which Nova builds or deletes a server, and longest pause
# between two polls of many servers.
SERVER_S = 0.1
MANY_S = 2.0
# Timeout of a request; a busy machine may need long for it.
TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A server of Nova.

    :ivar row: ``launch_index``, its row in the group's matrix.
    :ivar host: host that it runs on, None until it is placed.
    :ivar reservation: id of the request that made it and its group.
    """

    uuid: str
    name: str
    status: str
    row: int
    host: str | None
    fault: str | None = None
    reservation: str | None = None


Servers = Sequence[Server]


class NovaError(exception.VirtcoException):
    """Nova failed a request, did not answer, or did not build a server."""

    msg_fmt = 'Nova did not %(what)s: %(why)s.'


class NovaClient:
    """Client of one project.

    :param url: address of the API with its version, as nova_stack prints it.
    :param project_id: project of the tenant; None is the stack's own.
    """

    def __init__(self, url: str, project_id: str | None = None,
                 timeout_s: float = TIMEOUT_S):
        self._url = url.rstrip('/')
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update({
            'OpenStack-API-Version': f'compute {MICROVERSION}'})
        if project_id is not None:
            self._session.headers['X-Auth-Project-Id'] = project_id

    def create_group(self, name: str, n_vms: int, hints: dict[str, str], *,
                     flavor: str = 'slot1', **fields: Any) -> list[Server]:
        """Ask for n_vms servers at once; they are in the order of rows.

        :param hints: scheduler hints, e.g. of :func:`virtco.hints.encode`.
        :param fields: further fields of the servers, such as metadata.
        """
        answer = self._request('create', 'POST', '/servers', json={
            'server': {
                'name': name, 'imageRef': IMAGE, 'flavorRef': flavor,
                'networks': 'none', 'min_count': n_vms, 'max_count': n_vms,
                'return_reservation_id': True, **fields},
            'os:scheduler_hints': hints})
        return self.list_servers(reservation_id=answer['reservation_id'])

    def list_servers(self, **filters: str) -> list[Server]:
        """List the servers of the project, by row."""
        answer = self._request('list', 'GET', '/servers/detail',
                               params=filters)
        return sorted(map(_server, answer['servers']),
                      key=lambda server: (server.row, server.name))

    def get_server(self, uuid: str) -> Server:
        """Read the present state of a server.

        :raises NovaError: also when the project has no such server.
        """
        return _server(self._request('show', 'GET',
                                     f'/servers/{uuid}')['server'])

    def wait_active(self, servers: Iterable[Server],
                    on_count: Callable[[int], object] = lambda count: None,
                    stall_s: float = patience.STALL_S) -> list[Server]:
        """Wait until all are ACTIVE and return them with their hosts.

        :param on_count: gets the number of those that are.
        :param stall_s: to wait without progress while neither this process
            nor one of its children has work.
        :raises NovaError: when one is in ERROR or nothing gets on.
        """
        servers = list(servers)
        uuids = [server.uuid for server in servers]
        reservations = {server.reservation for server in servers}
        # Listing a server takes Nova as long as building it.
        filters = {}
        if len(reservations) == 1 and None not in reservations:
            filters['reservation_id'] = str(*reservations)

        def left(found: Servers) -> tuple[int, str]:
            for server in found:
                if server.status == 'ERROR':
                    raise NovaError(what=f'build {server.name}',
                                    why=self.get_server(server.uuid).fault)
            n_active = sum(server.status == 'ACTIVE' for server in found)
            on_count(n_active)
            return len(uuids) - n_active, f'{n_active} are ACTIVE'

        # None of them may be left, but where each is has to be asked.
        return self._wait(
            uuids, left, f'build {len(uuids)} servers', stall_s,
            sum(server.status != 'ACTIVE' for server in servers), **filters)

    def delete(self, servers: Iterable[Server],
               on_count: Callable[[int], object] = lambda count: None,
               stall_s: float = patience.STALL_S) -> None:
        """Delete servers and wait until they are gone.

        :param on_count: gets the number of those that are left.
        :param stall_s: longest time without progress, as in
            :meth:`wait_active`.
        """
        uuids = [server.uuid for server in servers]
        for uuid in uuids:
            self._request('delete', 'DELETE', f'/servers/{uuid}', gone=True)

        def left(found: Servers) -> tuple[int, str]:
            if found:
                on_count(len(found))
            return len(found), f'{len(found)} are left'

        self._wait(uuids, left, f'delete {len(uuids)} servers', stall_s)

    def _wait(self, uuids: Sequence[str],
              left: Callable[[Servers], tuple[int, str]], what: str,
              stall_s: float, n_left: int = 0, **filters: str
              ) -> list[Server]:
        """Poll until no server is awaited; return those that there are.

        :param left: number of those that are awaited of those that there are,
            and how it is called.
        :param n_left: number of those that are awaited at first.
        :raises NovaError: when nothing advanced for more than ``stall_s``.
        """
        clock = patience.IdleClock()
        asked_s = time.monotonic()
        while True:
            if n_left:
                _pause(asked_s, n_left)
            asked_s = time.monotonic()
            known = {server.uuid: server
                     for server in self.list_servers(**filters)}
            found = [known[uuid] for uuid in uuids if uuid in known]
            n_left, state = left(found)
            if not n_left:
                return found
            clock.note(n_left)
            if clock.read_s() > stall_s:
                raise NovaError(what=what, why=f'{state}, and nothing '
                                               f'advanced for {stall_s:g} s')

    def _request(self, what: str, method: str, path: str, *,
                 gone: bool = False, **kwargs: Any) -> Any:
        """Send a request; return the decoded answer.

        :param gone: an answer 404 is as good as success.
        """
        try:
            response = self._session.request(
                method, self._url + path, timeout=self._timeout_s, **kwargs)
        except requests.RequestException as error:
            raise NovaError(what=what, why=error) from error
        if response.status_code == 404 and gone:
            return None
        if not response.ok:
            raise NovaError(what=what, why=f'HTTP {response.status_code} '
                                           f'{response.text[:300]}')
        return response.json() if response.content else None


def _pause(asked_s: float, n_left: int) -> None:
    """Sleep before the next poll; longer while many servers are awaited.

    A list of many servers costs Nova time that it needs to build them.
    """
    time.sleep(max(POLL_S, min(n_left * SERVER_S, MANY_S),
                   2 * (time.monotonic() - asked_s)))


def _server(body: dict[str, Any]) -> Server:
    return Server(
        uuid=body['id'], name=body['name'], status=body['status'],
        row=body.get('OS-EXT-SRV-ATTR:launch_index') or 0,
        host=body.get('OS-EXT-SRV-ATTR:host'),
        fault=body.get('fault', {}).get('message'),
        reservation=body.get('OS-EXT-SRV-ATTR:reservation_id'))
