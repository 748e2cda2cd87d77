# SPDX-License-Identifier: Apache-2.0

"""Requests to the controller about a scheduling pass of Nova.

A pass without any ``virtco:`` key must cost next to nothing. Scheduler hints
are part of the request; server metadata is in the API database. So a server
without such hints costs one indexed query per API request, which fetches a row
number only; Nova's objects are read only when it finds a key.
"""

import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_filters import planclient
from nova_filters import recent
from virtco import exception
from virtco import hints
from virtco import units

LOG = logging.getLogger(__name__)

_without_metadata = recent.Recent()
_kept = recent.Recent(64)


def request_id(spec: Any) -> str:
    """Return the API request's id, which the passes of its servers share."""
    context = spec._context
    found: str = (getattr(context, 'request_id', None)
                  or spec.instance_uuid)
    return found


def ask(spec: Any, host_states: list[Any], conf: cfg.ConfigOpts
        ) -> dict[str, Any] | None:
    """Return the controller's answer for one pass, if there is a hint and
    time.
    """
    since_s = time.monotonic()
    client = planclient.get_client(conf)
    if not client.may_ask(request_id(spec)):
        if not client.knows(request_id(spec)) and not _scheduler_hints(spec):
            return None
        return client.recall(spec.instance_uuid, request_id(spec),
                             lambda: _offers(host_states))
    found, metadata, instance = read_hints(spec, conf)
    if not found and not metadata:
        return None
    body = build(spec, host_states, found, metadata, instance)
    return client.place(spec.instance_uuid, body, request_id(spec), since_s)


def requires_a_place(spec: Any, conf: cfg.ConfigOpts) -> bool:
    """Tell whether the hint has a wish that is required; a bad hint has none.
    """
    found = _scheduler_hints(spec)
    metadata: dict[str, Any] = {}
    if not any(key.startswith(hints.TM) for key in found):
        # With a matrix in the hints, wishes in the metadata do not count.
        found, metadata, _instance = read_hints(spec, conf)
    if not {hints.WITHIN, hints.SPREAD} & {*found, *metadata}:
        return False
    try:
        outline = hints.outline(found, metadata)
    except exception.HintInvalid:
        return False
    return outline is not None and bool(outline.wishes.required)


def keep(spec: Any, host_states: list[Any], answer: dict[str, Any]) -> None:
    """Keep the filter's answer for the weigher of the same pass."""
    _kept.put(spec.instance_uuid,
              (frozenset(state.host for state in host_states), answer))


def kept(spec: Any, host_states: list[Any]) -> dict[str, Any] | None:
    """Take the answer of :func:`keep`, unless its best host was dropped."""
    hosts, answer = _kept.pop(spec.instance_uuid) or (frozenset(), None)
    now = {state.host for state in host_states}
    if answer is None or not now <= hosts or (
            answer['hosts'] and answer['hosts'][0]['host'] not in now):
        return None
    found: dict[str, Any] = answer
    return found


def read_hints(spec: Any, conf: cfg.ConfigOpts
               ) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Read the ``virtco:`` keys of a request.

    :returns: scheduler hints, server metadata, and the instance as Nova keeps
        it (None when there are no keys or it cannot be read).
    """
    found = _scheduler_hints(spec)
    if not found and not (
            conf.virtco.read_metadata and _may_have_metadata(spec)):
        return {}, {}, None
    instance = _read_instance(spec)
    if instance is None:
        return found, {}, None
    metadata = {}
    if conf.virtco.read_metadata and 'metadata' in instance:
        metadata = hints.select(instance.metadata)
    if not found and not metadata:
        return {}, {}, None
    return found, metadata, instance


def _scheduler_hints(spec: Any) -> dict[str, Any]:
    return hints.select(
        spec.scheduler_hints if 'scheduler_hints' in spec else None)


def build(spec: Any, host_states: list[Any], found: dict[str, Any],
          metadata: dict[str, Any], instance: Any) -> dict[str, Any]:
    """Build the body of ``PUT /v1/placements/{instance_uuid}``."""
    def of_instance(name: str, default: Any) -> Any:
        if instance is None or name not in instance:
            return default
        return getattr(instance, name)

    return {
        'project_id': spec.project_id,
        'user_id': spec.user_id if 'user_id' in spec else None,
        'display_name': of_instance('display_name', None),
        'reservation_id': of_instance('reservation_id', None),
        'launch_index': of_instance('launch_index', 0) or 0,
        'num_instances': spec.num_instances,
        'hints': found,
        'metadata': metadata,
        'flavor': _demand(spec),
        **units.vif_caps(spec.flavor.extra_specs if (
            'extra_specs' in spec.flavor) else None),
        'server_group': _server_group(spec),
        'hosts': _offers(host_states),
    }


def _offers(host_states: list[Any]) -> list[dict[str, Any]]:
    return [{'host': state.host, 'node': state.nodename,
             'free': _free(state)} for state in host_states]


def _demand(spec: Any) -> dict[str, float]:
    """Compute Nova's claim; a volume-backed server uses no root disk."""
    flavor = spec.flavor
    volume_backed = 'is_bfv' in spec and spec.is_bfv
    disk_gb = (0 if volume_backed else flavor.root_gb) + (
        flavor.ephemeral_gb or 0)
    return {'vcpus': flavor.vcpus, 'memory_mb': flavor.memory_mb,
            'disk_gb': disk_gb + units.swap_gb(flavor.swap or 0)}


def _free(state: Any) -> dict[str, float]:
    """Compute a host's free resources as placement sees them.

    Not ``free_disk_mb``: that is what thin images may still grow into, which
    placement does not look at. The price is that disk taken by earlier
    servers of the same batch is not subtracted.
    """
    vcpus = state.vcpus_total * (state.cpu_allocation_ratio or 1.0)
    ram_mb = state.total_usable_ram_mb * (
        (state.ram_allocation_ratio or 1.0) - 1.0)
    disk_gb = state.total_usable_disk_gb * (
        state.disk_allocation_ratio or 1.0)
    return {'vcpus': max(0.0, vcpus - state.vcpus_used),
            'memory_mb': max(0.0, ram_mb + state.free_ram_mb),
            'disk_gb': max(0.0, disk_gb - state.disk_mb_used / 1024)}


def _server_group(spec: Any) -> dict[str, Any] | None:
    group = spec.instance_group if 'instance_group' in spec else None
    if group is None or not group.policy:
        return None
    rules = (group.rules if 'rules' in group else None) or {}
    return {'policy': group.policy,
            'members': list(group.members or []),
            'hosts': sorted(group.hosts or []),
            'max_per_host': int(rules.get('max_server_per_host', 1))}


def _may_have_metadata(spec: Any) -> bool:
    """Return False for certain, or True when the instance is worth reading."""
    key = request_id(spec)
    if key in _without_metadata:
        return False
    try:
        from nova_filters import metadata_query
        if metadata_query.has_virtco_keys(spec._context, spec.instance_uuid):
            return True
    except Exception as error:
        LOG.warning('Cannot look for virtco metadata of instance %s: %s',
                    spec.instance_uuid, error)
    # Nor is a query repeated that failed: filter and weigher both ask.
    _without_metadata.put(key)
    return False


def _read_instance(spec: Any) -> Any:
    """Read the instance from its build request or, for a move, its cell."""
    from nova import context as nova_context
    from nova import exception as nova_exception
    from nova import objects
    context, uuid = spec._context, spec.instance_uuid
    try:
        try:
            return objects.BuildRequest.get_by_instance_uuid(
                context, uuid).instance
        except nova_exception.BuildRequestNotFound:
            mapping = objects.InstanceMapping.get_by_instance_uuid(
                context, uuid)
            if mapping.cell_mapping is None:
                return None
            with nova_context.target_cell(
                    context, mapping.cell_mapping) as cell_context:
                return objects.Instance.get_by_uuid(
                    cell_context, uuid, expected_attrs=['metadata'])
    except Exception as error:  # e.g. the database; the hints still hold
        LOG.warning('Cannot read instance %s: %s', uuid, error)
        return None
