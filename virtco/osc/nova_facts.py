# SPDX-License-Identifier: Apache-2.0

"""Asks Nova and placement which host is where, as the calling operator."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import math
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session as ks_session
import msgspec

from virtco import decoding
from virtco import exception
from virtco import units
from virtco.topology import nova_topology as nova
from virtco.wire import fields

TIMEOUT_S = 30.0
#: Services with their microversions. Providers are found by trait since 1.18,
#: summaries name every resource of a provider since 1.27.
COMPUTE = 'compute', None
TRAITS = 'placement', '1.18'
CANDIDATES = 'placement', '1.27'
#: Placement's resource classes by the controller's names.
CLASSES = {'vcpus': 'VCPU', 'memory_mb': 'MEMORY_MB', 'disk_gb': 'DISK_GB'}
_DEMAND: decoding.Decoder[fields.Resources] = decoding.Decoder(
    fields.Resources, 'resource')
#: Help of an argument that :func:`flavor` reads.
FLAVOR = ('Name or id of a flavor, or what a VM takes, such as '
          'vcpus=4,memory_mb=8192,disk_gb=20')
#: Traits beyond these are too many to ask for one by one.
MAX_TRAITS = 5000


def read(session: ks_session.Session | None, levels: tuple[str, ...]
         ) -> tuple[list[nova.Aggregate], dict[str, list[str]]]:
    """Read host aggregates and, by host, the traits that name nodes of these
    levels.

    :raises virtco.exception.NovaUnavailable:
    :raises virtco.exception.Invalid: without a way to log in.
    """
    with _asking(session) as asked:
        return list(_aggregates(asked)), _traits(asked, levels)


def flavor(session: ks_session.Session | None, name: str
           ) -> dict[str, float]:
    """Return the resources that a VM of a flavor takes of its host.

    :param name: name of the flavor, its id, or its resources.
    :raises virtco.exception.NovaUnavailable:
    :raises virtco.exception.NotFound:
    :raises virtco.exception.Invalid: without a way to log in.
    """
    if '=' in name:
        return _demand(name)
    with _asking(session) as asked:
        found = [one for one in _flavors(asked)
                 if name in (one['name'], one['id'])]
        # An id first: another flavor may be named so.
        for one in sorted(found, key=lambda one: one['id'] != name):
            return {'vcpus': float(one['vcpus']),
                    'memory_mb': float(one['ram']),
                    'disk_gb': float(one['disk']) + float(
                        one.get('OS-FLV-EXT-DATA:ephemeral') or 0)
                    + units.swap_gb(
                        float(one.get('swap') or 0))}
    raise exception.NotFound(what='Flavor', id=name)


def _demand(text: str) -> dict[str, float]:
    """Parse the resources that a VM takes, as in :data:`FLAVOR`.

    :raises virtco.exception.InputInvalid:
    """
    given = dict(part.partition('=')[::2] for part in text.split(','))
    try:
        found = _DEMAND.convert(dict.fromkeys(CLASSES, 0.0) | given,
                                strict=False)
    except exception.Invalid as error:
        raise exception.InputInvalid(where='--flavor',
                                     **error.kwargs) from None
    return msgspec.structs.asdict(found)


def free(session: ks_session.Session | None, demand: Mapping[str, float]
         ) -> dict[str, dict[str, float]]:
    """Return free resources of each enabled host that fits one such VM.

    :raises virtco.exception.NovaUnavailable:
    :raises virtco.exception.Invalid: without a way to log in.
    """
    with _asking(session) as asked:
        names = {one['uuid']: one['name'] for one in _get(
            asked, CANDIDATES, '/resource_providers')['resource_providers']}
        wanted = ','.join(f'{CLASSES[name]}:{math.ceil(amount)}'
                          for name, amount in demand.items() if amount > 0)
        summaries = _get(asked, CANDIDATES, '/allocation_candidates',
                         resources=wanted, required='!COMPUTE_STATUS_DISABLED'
                         )['provider_summaries']
        return {
            names[provider]: {
                name: float(has['capacity']) - float(has['used'])
                for name, kind in CLASSES.items()
                for has in [summary['resources'].get(
                    kind, {'capacity': 0, 'used': 0})]}
            for provider, summary in summaries.items()
            # Devices of a host are providers of their own.
            if CLASSES['vcpus'] in summary['resources']}


@contextlib.contextmanager
def _asking(session: ks_session.Session | None
            ) -> Iterator[ks_session.Session]:
    """Translate errors of Nova and placement into one of ours."""
    if session is None:
        raise exception.Invalid(
            field='--os-auth-type', value=None,
            limit='a way to log in to keystone, to ask Nova')
    try:
        yield session
    except (ks_exceptions.ClientException, OSError, ValueError, TypeError,
            LookupError, AttributeError) as error:
        raise exception.NovaUnavailable(
            why=f'{type(error).__name__}: {str(error)[:200]}') from error


def _get(session: ks_session.Session, service: tuple[str, str | None],
         path: str, **params: str) -> Any:
    kind, microversion = service
    return session.get(
        path, endpoint_filter={'service_type': kind}, params=params,
        microversion=microversion, user_agent='virtco-client',
        timeout=TIMEOUT_S).json()


def _flavors(session: ks_session.Session) -> Iterator[dict[str, Any]]:
    """Yield all flavors; Nova tells a thousand at a time."""
    marker: dict[str, str] = {}
    while True:
        page = _get(session, COMPUTE, '/flavors/detail', is_public='None',
                    **marker)
        yield from page['flavors']
        if not page.get('flavors_links'):
            return
        marker = {'marker': page['flavors'][-1]['id']}


def _aggregates(session: ks_session.Session) -> Iterator[nova.Aggregate]:
    for body in _get(session, COMPUTE, '/os-aggregates')['aggregates']:
        metadata = body.get('metadata') or {}
        yield nova.Aggregate(
            body['name'], tuple(body['hosts']), metadata,
            body.get('availability_zone')
            or metadata.get('availability_zone'))


def _traits(session: ks_session.Session,
            levels: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for level in levels:
        traits = _get(session, TRAITS, '/traits', name='startswith:'
                      + nova.trait_prefix(level))['traits']
        if len(traits) > MAX_TRAITS:
            raise ValueError(f'{len(traits)} traits of level {level}')
        for trait in traits:
            for provider in _get(session, TRAITS, '/resource_providers',
                                 required=trait)['resource_providers']:
                found.setdefault(provider['name'], []).append(trait)
    return found
