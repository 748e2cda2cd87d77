# SPDX-License-Identifier: Apache-2.0

"""Groups from Nova alone: a server's hints say all that a group is.

What Nova does not know is lost: plans, bytes that were sent, matrices that
were registered, debts and settings.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import time
from typing import Any

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import hints
from virtco import units
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import session as db_session
from virtco.follow import nova
from virtco.model import states
from virtco.objects import group_rules
from virtco.objects import new_groups

#: Groups of one transaction.
CHUNK = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server(nova.Server):
    """A server with its tenant's hints and metadata.

    :ivar launch_index: in its request.
    :ivar demand: vCPUs, MB of memory and GB of disk.
    :ivar caps: caps of its ports (:func:`virtco.units.vif_caps`).
    """

    project_id: str
    name: str
    created: str
    launch_index: int
    reservation_id: str
    demand: tuple[float, float, float]
    caps: Mapping[str, float | None]
    hints: dict[str, Any]
    metadata: dict[str, Any]


@dataclasses.dataclass
class Outcome:
    """Counts of a rebuild.

    :ivar skipped: (project, group or server, reason).
    """

    n_servers: int = 0
    n_groups: int = 0
    n_members: int = 0
    skipped: list[tuple[str, str, str]] = dataclasses.field(
        default_factory=list)


def read(body: dict[str, Any]) -> Server:
    """Read a server in the form of Nova's microversion 2.100."""
    flavor = body['flavor']
    prefix = 'OS-EXT-SRV-ATTR:'
    return Server(
        **dataclasses.asdict(nova.read(body)), project_id=body['tenant_id'],
        name=body['name'], created=body['created'],
        launch_index=body.get(f'{prefix}launch_index') or 0,
        reservation_id=body.get(f'{prefix}reservation_id') or '',
        demand=(
            float(flavor['vcpus']), float(flavor['ram']),
            # A volume-backed server has no image and no root disk there.
            (float(flavor['disk']) if body.get('image') else 0.0)
            + flavor['ephemeral'] + units.swap_gb(flavor['swap'])),
        caps=units.vif_caps(flavor.get('extra_specs')),
        hints=body.get('scheduler_hints') or {},
        metadata=body.get('metadata') or {})


def rebuild(conf: cfg.ConfigOpts, database: db_session.Database,
            servers: Iterable[Server], dry_run: bool = False,
            clock: Callable[[], float] = time.time) -> Outcome:
    """Write down the groups that the servers form.

    A living group that the database has stays as it is.

    :raises virtco.exception.DatabaseUnavailable:
    :raises virtco.exception.NovaUnavailable:
    """
    outcome = Outcome()
    found = list(_groups(servers, new_groups.limits_of(conf), outcome))
    for start in range(0, len(found), CHUNK):
        chunk = found[start:start + CHUNK]
        if dry_run:
            with database.reader() as session:
                rows = _rows(session, chunk, clock(), outcome)
        else:
            rows = database.retried(
                lambda session: _write(session, chunk, clock(), outcome))
        outcome.n_groups += len(rows)
        outcome.n_members += sum(
            member.instance_uuid is not None
            for _group, members, _coflows in rows for member in members)
    return outcome


_Group = tuple[str, hints.Hint, dict[int, Server]]


def _groups(servers: Iterable[Server], limits: hints.Limits,
            outcome: Outcome) -> Iterator[_Group]:
    """Yield project, hint and the server of each row of each group."""
    named: dict[tuple[str, str], list[tuple[Server, hints.Outline]]] = {}
    for server in servers:
        outcome.n_servers += 1
        if server.status in nova.OVER or (
                server.status == 'ERROR' and not server.host):
            continue
        try:
            outline = hints.outline(server.hints, server.metadata, limits)
        except exception.HintInvalid as error:
            outcome.skipped.append((server.project_id, server.uuid,
                                    str(error)))
            continue
        if outline is not None:
            named.setdefault((server.project_id, outline.coflow_name),
                             []).append((server, outline))
    for (project_id, name), parts in named.items():
        parts.sort(key=lambda part: (part[0].created,
                                     part[0].launch_index, part[0].uuid))
        try:
            hint = _hint(parts, limits)
        except exception.HintInvalid as error:
            outcome.skipped.append((project_id, name, str(error)))
            continue
        yield project_id, hint, _by_row(project_id, hint, parts, outcome)


def _hint(parts: Sequence[tuple[Server, hints.Outline]],
          limits: hints.Limits) -> hints.Hint:
    """Read the hint of the first server that brings the matrix.

    :raises virtco.exception.HintInvalid:
    """
    for _server, outline in parts:
        if outline.matrix_text is not None:
            return outline.read(limits)
    raise exception.HintInvalid(
        field=hints.TM, value=None,
        limit='a matrix of its own (registered ones are lost)')


def _by_row(project_id: str, hint: hints.Hint,
            parts: Sequence[tuple[Server, hints.Outline]],
            outcome: Outcome) -> dict[int, Server]:
    """Give rows as at a launch: the asked one or the next free one."""
    n_vms = hint.coflows[0].n_vms
    found: dict[int, Server] = {}
    for server, outline in sorted(
            parts, key=lambda part: part[1].index is None):
        wanted = (outline.index if outline.index is not None
                  else server.launch_index) % n_vms
        row = next((row for row in (
            (wanted + step) % n_vms for step in range(n_vms))
            if row not in found), None)
        if row is None:
            outcome.skipped.append((project_id, server.uuid, (
                f'all {n_vms} rows of {hint.coflow_name} have a VM')))
        else:
            found[row] = server
    return found


def _write(session: orm.Session, chunk: Sequence[_Group], now_s: float,
           outcome: Outcome) -> list[new_groups.Rows]:
    """Insert a chunk of groups with members and coflows."""
    db_groups.advance(session.connection())
    found = _rows(session, chunk, now_s, outcome)
    if found:
        groups, members, coflows = zip(*found)
        db_groups.insert(session, models.Group,
                         [row.columns() for row in groups])
        for model, rows in (models.Member, members), (models.Coflow, coflows):
            db_groups.insert(session, model, [
                row.columns() for row in itertools.chain(*rows)])
    return found


def _rows(session: orm.Session, chunk: Sequence[_Group], now_s: float,
          outcome: Outcome) -> list[new_groups.Rows]:
    """Return the rows that the database lacks."""
    known = {row[0] for row in db_groups.living_vms(session)}
    found = []
    for project_id, hint, servers in chunk:
        if db_groups.find(session, project_id,
                          hint.coflow_name) is not None:
            reason = 'there is such a group'
        elif any(server.uuid in known for server in servers.values()):
            reason = 'a server of it is in another group'
        else:
            found.append(_made(session, project_id, hint, servers, now_s))
            continue
        outcome.skipped.append((project_id, hint.coflow_name, reason))
    return found


def _made(session: orm.Session, project_id: str, hint: hints.Hint,
          servers: dict[int, Server], now_s: float) -> new_groups.Rows:
    """Build the rows of a group from its hint and its present servers."""
    group, members, coflows = new_groups.new_group(
        session, project_id, hint, hint.coflows, now_s)
    group.why = 'rebuilt from Nova'
    group.rules = group_rules.Rules().asking(hint.wishes).record()
    for row, server in servers.items():
        member = members[row]
        member.instance_uuid = server.uuid
        member.display_name = server.name[:255]
        member.reservation_id = server.reservation_id[:255]
        member.vcpus, member.memory_mb, member.disk_gb = server.demand
        member.addresses = ' '.join(server.addresses)
        for name, value in server.caps.items():
            setattr(member, name, value)
        if server.host is not None and server.status not in nova.UNDECIDED:
            member.state = states.MemberState.RUNNING
            member.host = server.host
            member.placed_at = now_s
    return group, members, coflows
