# SPDX-License-Identifier: Apache-2.0

"""Client of Nova's API that lists servers, besides notifications."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as ks_session
from oslo_config import cfg

from virtco import exception
from virtco.follow import notifications

OVER = frozenset({'DELETED', 'SOFT_DELETED'})
UNDECIDED = frozenset({'BUILD', 'UNKNOWN'})


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A VM of Nova.

    :ivar is_changing: Nova works on it; a notification will tell the rest.
    :ivar fault: message of the last fault.
    :ivar addresses: addresses of its ports.
    """

    uuid: str
    status: str
    host: str | None
    is_changing: bool = False
    fault: str = ''
    addresses: tuple[str, ...] = ()


GROUP = 'nova'
# Timeout of one request; a page of a busy Nova takes seconds.
TIMEOUT_S = 30
#: Servers asked for at a time; Nova's ``[api] max_limit`` bounds it, too.
PAGE = '500'
#: Nova tells the scheduler hints of a server since then.
HINTS_VERSION = '2.100'


def adapter_of(conf: cfg.ConfigOpts, session: ks_session.Session,
               service_type: str, url: str | None,
               version: str | None = None) -> adapter.Adapter:
    """Return an adapter of a service of the cloud.

    :param url: None: as the catalogue has it.
    """
    return adapter.Adapter(
        session, service_type=service_type,
        interface=conf.nova.valid_interfaces,
        region_name=conf.nova.region_name, endpoint_override=url,
        user_agent='virtco-controller', raise_exc=False,
        default_microversion=version)


class Nova:
    """Nova's compute API as an operator's account sees it.

    No microversion is asked for unless said: most is in 2.1.

    :ivar session: logged in.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        """Log in.

        :raises virtco.exception.Invalid: for credentials that cannot be.
        """
        self._conf = conf.nova
        try:
            auth = loading.load_auth_from_conf_options(conf, GROUP)
            self.session = loading.session.Session().load_from_options(
                auth=auth, timeout=TIMEOUT_S, insecure=self._conf.insecure,
                cacert=self._conf.cafile, cert=self._conf.certfile,
                key=self._conf.keyfile)
            self._adapter = adapter_of(
                conf, self.session, 'compute', conf.nova.endpoint_override)
        except (ks_exceptions.ClientException, TypeError,
                ValueError) as error:
            raise exception.Invalid(
                field='[nova] auth_type', value=conf.nova.auth_type,
                limit=f'a way to log in ({error})') from error

    def servers(self, project_id: str) -> Iterator[Server]:
        """Yield the servers of a project that are not deleted.

        :raises virtco.exception.NovaUnavailable:
        """
        with translated():
            yield from map(read, self._servers(project_id=project_id))

    def all_servers(self) -> Iterator[dict[str, Any]]:
        """Yield all servers of the cloud in the form of Nova 2.100.

        :raises virtco.exception.NovaUnavailable:
        """
        return self._servers(HINTS_VERSION)

    def set_metadata(self, uuid: str, values: Mapping[str, str]) -> bool:
        """Add metadata to a server; one that is gone does not matter.

        :returns: False when the server's state does not allow it.
        :raises virtco.exception.NovaUnavailable:
        """
        with translated():
            response = self._adapter.post(f'/servers/{uuid}/metadata',
                                          json={'metadata': dict(values)})
            if response.status_code not in (404, 409):
                response.raise_for_status()
            return response.status_code != 409

    def live_migrate(self, uuid: str, host: str) -> None:
        """Have a server moved; Nova's scheduler checks the host.

        :raises virtco.exception.NovaUnavailable: or it refuses.
        """
        with translated():
            response = self._adapter.post(
                f'/servers/{uuid}/action', microversion='2.68',
                json={'os-migrateLive': {'host': host,
                                         'block_migration': 'auto'}})
            response.raise_for_status()

    def server(self, uuid: str) -> Server | None:
        """Return a server; None when Nova knows none of that uuid.

        :raises virtco.exception.NovaUnavailable:
        """
        with translated():
            response = self._adapter.get(f'/servers/{uuid}')
            # Nova's own word for it: a 404 of a proxy tells nothing.
            if (response.status_code == 404
                    and 'itemNotFound' in response.json()):
                return None
            response.raise_for_status()
            return read(response.json()['server'])

    def hypervisors(self) -> dict[str, str]:
        """Return the host of each provider's uuid where VMs may be started.

        :raises virtco.exception.NovaUnavailable:
        """
        with translated():
            return {one['id']: one['service']['host'] for one in listed(
                self._adapter, '/os-hypervisors/detail', 'hypervisors',
                '2.53', limit=PAGE)
                if (one['state'], one['status']) == ('up', 'enabled')}

    def _servers(self, version: str | None = None, **wanted: str
                 ) -> Iterator[dict[str, Any]]:
        return listed(self._adapter, '/servers/detail', 'servers', version,
                      limit=PAGE, all_tenants='1', **wanted)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise any failure of Nova, keystone or the answer as one error."""
    try:
        yield
    except (ks_exceptions.ClientException, OSError, ValueError, TypeError,
            LookupError, AttributeError) as error:
        raise exception.NovaUnavailable(
            why=f'{type(error).__name__}: {str(error)[:200]}') from error


def listed(service: adapter.Adapter, path: str, name: str,
           version: str | None = None, **wanted: Any
           ) -> Iterator[dict[str, Any]]:
    """Yield the entries of all pages of a service's list.

    :param name: name of the list in its answers.
    :raises virtco.exception.NovaUnavailable:
    """
    while True:
        with translated():
            response = service.get(path, microversion=version, params=wanted)
            if response.status_code == 406:
                raise exception.NovaUnavailable(
                    why=f'it has no microversion {version}')
            response.raise_for_status()
            page = response.json()
            yield from page[name]
            # Services shorten pages to their own limit: only a link tells.
            if not page[name] or not any(
                    link['rel'] == 'next'
                    for link in page.get(f'{name}_links', ())):
                return
            wanted['marker'] = page[name][-1]['id']


def read(body: dict[str, Any]) -> Server:
    """Read a server in the form of any microversion."""
    return Server(
        uuid=body['id'], status=body['status'],
        host=body.get('OS-EXT-SRV-ATTR:host') or None,
        is_changing=body.get('OS-EXT-STS:task_state') is not None,
        fault=(body.get('fault') or {}).get('message', ''),
        addresses=fixed_ips(body))


def fixed_ips(body: dict[str, Any]) -> tuple[str, ...]:
    """Read the addresses of a server's ports, without floating ones."""
    return notifications.addresses_of(
        ip['addr'] for ips in (body.get('addresses') or {}).values()
        for ip in ips if ip.get('OS-EXT-IPS:type') != 'floating')
