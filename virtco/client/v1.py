# SPDX-License-Identifier: Apache-2.0

"""Client of REST v1 over a keystoneauth adapter.

Light on purpose: keystoneauth, which OpenStack's clients share, and nothing
of the controller.
"""

from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session

from virtco import exception

DEFAULT_URL = 'http://127.0.0.1:8791'
DEFAULT_TIMEOUT_S = 10.0

# Codes of the API back to the exceptions they came from.
_RAISED: dict[str, type[exception.VirtcoException]] = {
    'virtco.hint_invalid': exception.HintInvalid,
    'virtco.invalid': exception.Invalid,
    'virtco.infeasible': exception.PlacementInfeasible,
    'virtco.not_found': exception.NotFound,
    'virtco.conflict': exception.Conflict,
    'virtco.forbidden': exception.Forbidden,
    'virtco.database_unavailable': exception.DatabaseUnavailable,
    'virtco.starting': exception.Starting,
}


class Client:
    """Calls of one controller; every call is bounded in time.

    :param url: of the controller; None reads ``VIRTCO_URL``.
    :param session: keystoneauth session that authenticates; None for a
        controller without authentication.
    :param timeout_s: for the connection, and between two packets.
    """

    def __init__(self, url: str | None = None,
                 session: ks_session.Session | None = None,
                 timeout_s: float = DEFAULT_TIMEOUT_S):
        self.url = (url or os.environ.get('VIRTCO_URL')
                    or DEFAULT_URL).rstrip('/')
        self._timeout_s = timeout_s
        self._adapter = adapter.Adapter(
            session or ks_session.Session(auth=noauth.NoAuth()),
            endpoint_override=self.url, user_agent='virtco-client',
            raise_exc=False)

    def request(self, method: str, path: str, body: Any = None,
                params: Mapping[str, Any] | None = None,
                expected: Container[int] = ()) -> Any:
        """Send JSON, return what came back (None for an empty answer).

        :param expected: statuses that are an answer, not an error.
        :raises virtco.exception.ControllerUnavailable: no answer, or not one
            of the controller's.
        :raises virtco.exception.VirtcoException: the error it reported.
        """
        kwargs: dict[str, Any] = {'timeout': self._timeout_s}
        if body is not None:
            kwargs['json'] = body
        if params:
            kwargs['params'] = {key: value for key, value in params.items()
                                if value is not None}
        try:
            response = self._adapter.request(path, method, **kwargs)
        except ks_exceptions.ClientException as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        if response.status_code == 204 or not response.content:
            return None
        try:
            found = response.json()
        except ValueError as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=f'HTTP {response.status_code} without JSON'
            ) from error
        if response.status_code >= 400 and (
                response.status_code not in expected):
            self._raise(response.status_code, found)
        return found

    def _raise(self, status: int, body: Any) -> None:
        error = body.get('error') if isinstance(body, dict) else None
        if not isinstance(error, dict) or 'code' not in error:
            raise exception.ControllerUnavailable(
                url=self.url, why=f'HTTP {status}')
        raise _RAISED.get(error['code'], exception.VirtcoException)(
            error.get('detail') or error.get('title'),
            **{name: error[name] for name in ('field', 'value', 'limit')
               if name in error})

    def _dict(self, method: str, path: str,
              body: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = self.request(method, path, body)
        return found

    def _list(self, path: str, name: str,
              params: Mapping[str, Any] | None = None
              ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.request(
            'GET', path, params=params)[name]
        return found

    def coflows(self, project_id: str | None = None,
                state: str | None = None) -> list[dict[str, Any]]:
        return self._list('/v1/coflows', 'coflows', {
            'project_id': project_id, 'state': state})

    def coflow(self, coflow_id: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/coflows/{_quote(coflow_id)}')

    def register(self, name: str, tm: Any,
                 project_id: str | None = None) -> dict[str, Any]:
        body = {'name': name, 'tm': tm}
        if project_id is not None:
            body['project_id'] = project_id
        return self._dict('POST', '/v1/coflows', body)

    def announce(self, group: str, name: str, tm: Any,
                 expires_s: float | None = None,
                 project_id: str | None = None) -> list[dict[str, Any]]:
        """Coflows over the VMs of a living group.

        :param tm: as a hint's ``virtco:tm``, over the rows of the group.
        """
        body = {'name': name, 'tm': tm}
        if expires_s is not None:
            body['expires_s'] = expires_s
        found: dict[str, Any] = self.request(
            'POST', f'/v1/groups/{_quote(group)}/coflows', body,
            {'project_id': project_id})
        made: list[dict[str, Any]] = found['coflows']
        return made

    def change_coflow(self, coflow_id: str,
                      **values: Any) -> dict[str, Any]:
        return self._dict('PATCH', f'/v1/coflows/{_quote(coflow_id)}',
                          values)

    def delete_coflow(self, coflow_id: str) -> None:
        self.request('DELETE', f'/v1/coflows/{_quote(coflow_id)}')

    def projects(self) -> list[dict[str, Any]]:
        return self._list('/v1/projects', 'projects')

    def change_project(self, project_id: str,
                       **values: Any) -> dict[str, Any]:
        return self._dict('PATCH', f'/v1/projects/{_quote(project_id)}',
                          values)

    def events(self, project_id: str | None = None) -> list[dict[str, Any]]:
        return self._list('/v1/events', 'events', {'project_id': project_id})

    def profiles(self, project_id: str | None = None
                 ) -> list[dict[str, Any]]:
        return self._list('/v1/profiles', 'profiles',
                          {'project_id': project_id})

    def profile(self, group: str, project_id: str | None = None
                ) -> dict[str, Any]:
        """What the pairs of a group sent; by its id or its name."""
        found: dict[str, Any] = self.request(
            'GET', f'/v1/profiles/{_quote(group)}',
            params={'project_id': project_id})
        return found

    def apps(self, project_id: str | None = None) -> list[dict[str, Any]]:
        return self._list('/v1/apps', 'apps', {'project_id': project_id})

    def app(self, name: str, n_vms: int | None = None,
            project_id: str | None = None) -> dict[str, Any]:
        """What the next launch of an application would get."""
        found: dict[str, Any] = self.request(
            'GET', f'/v1/apps/{_quote(name)}',
            params={'n_vms': n_vms, 'project_id': project_id})
        return found

    def forget_app(self, name: str, project_id: str | None = None) -> None:
        self.request('DELETE', f'/v1/apps/{_quote(name)}',
                     params={'project_id': project_id})

    def hosts(self) -> list[dict[str, Any]]:
        return self._list('/v1/hosts', 'hosts')

    def host(self, host: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/hosts/{_quote(host)}')

    def drain(self, host: str, reason: str = '') -> dict[str, Any]:
        return self._dict('PUT', f'/v1/hosts/{_quote(host)}/drain',
                          {'reason': reason})

    def undrain(self, host: str) -> None:
        self.request('DELETE', f'/v1/hosts/{_quote(host)}/drain')

    def history(self) -> list[dict[str, Any]]:
        return self._list('/v1/settings/history', 'changes')

    def policy(self, host: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/hosts/{_quote(host)}/policy')

    def check(self, hosts: Sequence[str] | None = None,
              group: str | None = None, purpose: str = 'check'
              ) -> dict[str, Any]:
        """Begin to check hosts, or those of a group.

        :param purpose: ``check``, or ``discover`` to find the tree above
            them; of all hosts, if none are named.
        """
        body: dict[str, Any] = {'purpose': purpose}
        if hosts is not None:
            body['hosts'] = list(hosts)
        elif group is not None:
            body['group'] = group
        return self._dict('POST', '/v1/checks', body)

    def check_state(self, check_id: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/checks/{_quote(check_id)}')

    def checks(self) -> list[dict[str, Any]]:
        return self._list('/v1/checks', 'checks')

    def matrix(self, kind: str, statistic: str | None = None,
               at: float | None = None,
               hosts: Sequence[str] | None = None) -> dict[str, Any]:
        """:param kind: rate or latency."""
        found: dict[str, Any] = self.request(
            'GET', f'/v1/matrices/{_quote(kind)}', params={
                'statistic': statistic, 'at': at,
                'hosts': ','.join(hosts) if hosts else None})
        return found

    def performers(self) -> dict[str, Any]:
        return self._dict('GET', '/v1/performers')

    def rates(self) -> list[dict[str, Any]]:
        return self._list('/v1/rates', 'pairs')

    def ask_probes(self, **request: Any) -> str:
        """See :class:`virtco.wire.probe.ProbeRequest`; the request's id."""
        return str(self._dict('POST', '/v1/probes', request)['id'])

    def asked_probes(self, probe_id: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/probes/{_quote(probe_id)}')

    def probes(self) -> dict[str, Any]:
        return self._dict('GET', '/v1/probes')

    def place(self, instance_uuid: str,
              request: Mapping[str, Any]) -> dict[str, Any]:
        return self._dict('PUT', f'/v1/placements/{_quote(instance_uuid)}',
                          request)

    def placement(self, instance_uuid: str) -> dict[str, Any]:
        return self._dict('GET', f'/v1/placements/{_quote(instance_uuid)}')

    def explanation(self, instance_uuid: str,
                    budget_s: float | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self.request(
            'GET', f'/v1/placements/{_quote(instance_uuid)}/explanation',
            params={'budget_s': budget_s})
        return found

    def advice(self) -> list[dict[str, Any]]:
        return self._list('/v1/advice', 'moves')

    def advise(self, budget_s: float | None = None) -> list[dict[str, Any]]:
        body = {} if budget_s is None else {'budget_s': budget_s}
        found: list[dict[str, Any]] = self._dict(
            'POST', '/v1/advice', body)['moves']
        return found

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._dict('POST', '/v1/plans', request)

    def tree(self, group: str, root: int = 0, size_bytes: float | None = None,
             operation: str | None = None, matrix: str | None = None,
             project_id: str | None = None) -> dict[str, Any]:
        """Communication trees of a group.

        :param group: id or name.
        :param operation: broadcast or reduce.
        :param matrix: estimate to go by: constant, rpca, median or raw.
        """
        found: dict[str, Any] = self.request(
            'GET', f'/v1/groups/{_quote(group)}/tree', params={
                'root': root, 'size_bytes': size_bytes,
                'operation': operation, 'matrix': matrix,
                'project_id': project_id})
        return found

    def mapping(self, group: str, tm: Any = None, matrix: str | None = None,
                project_id: str | None = None,
                all_reduce_bytes: float | None = None) -> dict[str, Any]:
        """Which rank of a matrix should run on which VM of a group.

        :param tm: as a hint's ``virtco:tm``; None = the group's own.
        :param all_reduce_bytes: of NCCL's all-reduce, in place of ``tm``.
        """
        body = {name: value for name, value in (
            ('tm', tm), ('matrix', matrix),
            ('all_reduce_bytes', all_reduce_bytes)) if value is not None}
        found: dict[str, Any] = self.request(
            'POST', f'/v1/groups/{_quote(group)}/mapping', body,
            {'project_id': project_id})
        return found

    def clusters(self, group: str, level: str | None = None,
                 project_id: str | None = None) -> dict[str, Any]:
        """Which members of a group share a rack or a host."""
        found: dict[str, Any] = self.request(
            'GET', f'/v1/groups/{_quote(group)}/clusters',
            params={'level': level, 'project_id': project_id})
        return found

    def settings(self) -> dict[str, str]:
        return self._dict('GET', '/v1/settings')

    def change_settings(self, **values: str) -> dict[str, str]:
        return self._dict('PATCH', '/v1/settings', values)

    def topology(self) -> dict[str, Any]:
        return self._dict('GET', '/v1/topology')

    def change_topology(self, planes: list[dict[str, Any]],
                        generation: int | None = None,
                        dry_run: bool = False) -> dict[str, Any]:
        """Replace these planes; those of other names stay.

        :param generation: refuse where the topology is not of that one.
        :param dry_run: only say what would change.
        """
        body = {'planes': planes, 'dry_run': dry_run}
        if generation is not None:
            body['generation'] = generation
        return self._dict('PUT', '/v1/topology', body)

    def capacity(self, flavor: Mapping[str, float], level: str,
                 free: Mapping[str, Mapping[str, float]],
                 vms: Sequence[int] = (), plane: str | None = None
                 ) -> dict[str, Any]:
        """How many groups fit below each switch of a level.

        :param flavor: of each VM: vcpus, memory_mb, disk_gb.
        :param free: host -> what is left on it, by the same names.
        :param vms: sizes of groups; none = 2, 4, 8, ….
        """
        body: dict[str, Any] = {
            'flavor': flavor, 'level': level, 'hosts': [
                {'host': host, 'free': left} for host, left in free.items()]}
        if vms:
            body['vms'] = list(vms)
        if plane is not None:
            body['plane'] = plane
        return self._dict('POST', '/v1/capacity', body)

    def delete_plane(self, plane: str) -> None:
        self.request('DELETE', f'/v1/topology/{_quote(plane)}')

    def notify(self, event_type: str, payload: Mapping[str, Any]) -> None:
        self.request('POST', '/v1/notifications', {
            'event_type': event_type, 'payload': payload})

    def health(self) -> dict[str, Any]:
        """Also that of a controller that starts or fails."""
        found: dict[str, Any] = self.request('GET', '/health', expected=(503,))
        return found


def _quote(part: str) -> str:
    return urllib.parse.quote(part, safe='')
