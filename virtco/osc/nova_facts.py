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

"""Asks Nova and placement which host is where, as the calling operator."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session as ks_session

from virtco import exception
from virtco.topology import nova

TIMEOUT_S = 30.0
#: Placement answers which providers have a trait since then.
PLACEMENT_VERSION = '1.18'
#: Traits beyond these are too many to ask for one by one.
MAX_TRAITS = 5000


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """:ivar traits: host -> traits of its provider that name a node."""

    aggregates: tuple[nova.Aggregate, ...]
    traits: dict[str, list[str]]


def read(session: ks_session.Session | None,
         levels: tuple[str, ...]) -> Facts:
    """:raises virtco.exception.NovaUnavailable:
    :raises virtco.exception.Invalid: without a way to log in.
    """
    if session is None:
        raise exception.Invalid(
            field='--os-auth-type', value='none',
            limit='a way to log in to keystone, Nova is asked')
    try:
        return Facts(tuple(_aggregates(session)),
                     _traits(session, levels))
    except (ks_exceptions.ClientException, OSError, ValueError, TypeError,
            LookupError, AttributeError) as error:
        raise exception.NovaUnavailable(
            why=f'{type(error).__name__}: {str(error)[:200]}') from error


def _get(client: adapter.Adapter, path: str, **params: str) -> Any:
    return client.get(path, params=params, timeout=TIMEOUT_S).json()


def _aggregates(session: ks_session.Session) -> Iterator[nova.Aggregate]:
    client = adapter.Adapter(session, service_type='compute',
                             user_agent='virtco-client')
    for body in _get(client, '/os-aggregates')['aggregates']:
        metadata = body.get('metadata') or {}
        yield nova.Aggregate(
            body['name'], tuple(body['hosts']), metadata,
            body.get('availability_zone')
            or metadata.get('availability_zone'))


def _traits(session: ks_session.Session,
            levels: tuple[str, ...]) -> dict[str, list[str]]:
    client = adapter.Adapter(
        session, service_type='placement', user_agent='virtco-client',
        default_microversion=PLACEMENT_VERSION)
    found: dict[str, list[str]] = {}
    for level in levels:
        traits = _get(client, '/traits', name='startswith:'
                      + nova.trait_prefix(level))['traits']
        if len(traits) > MAX_TRAITS:
            raise ValueError(f'{len(traits)} traits of level {level}')
        for trait in traits:
            for provider in _get(client, '/resource_providers',
                                 required=trait)['resource_providers']:
                found.setdefault(provider['name'], []).append(trait)
    return found
