# SPDX-License-Identifier: Apache-2.0

"""Every change of a member's host, written down by the database itself.

Triggers note each change beside the generation that its transaction counted,
so that the history has the order of the commits, whoever made them.
"""

import dataclasses

import sqlalchemy as sa

_TABLE = '''CREATE TABLE history (
    id {serial}, generation BIGINT, group_id VARCHAR(36), row_index INTEGER,
    state VARCHAR(16), host VARCHAR(255), vcpus {number},
    instance_uuid VARCHAR(36))'''
_NOTE = '''INSERT INTO history (generation, group_id, row_index, state, host,
    vcpus, instance_uuid)
    SELECT generation, NEW.group_id, NEW.row_index, NEW.state, NEW.host,
    NEW.vcpus, NEW.instance_uuid FROM cluster'''
_TRIGGERS = {
    'sqlite': ['CREATE TRIGGER note_{event} AFTER {event} ON members '
               'BEGIN {note}; END'],
    'mysql': ['CREATE TRIGGER note_{event} AFTER {event} ON members '
              'FOR EACH ROW {note}'],
    'postgresql': [
        'CREATE FUNCTION note_{event}() RETURNS trigger AS $$ BEGIN {note}; '
        'RETURN NULL; END $$ LANGUAGE plpgsql',
        'CREATE TRIGGER note_{event} AFTER {event} ON members '
        'FOR EACH ROW EXECUTE FUNCTION note_{event}()'],
}
_SERIAL = {'sqlite': 'INTEGER PRIMARY KEY AUTOINCREMENT',
           'mysql': 'BIGINT AUTO_INCREMENT PRIMARY KEY',
           'postgresql': 'BIGSERIAL PRIMARY KEY'}


@dataclasses.dataclass(frozen=True)
class Change:
    """What a member is after a commit."""

    generation: int
    group_id: str
    row_index: int
    state: str
    host: str | None
    vcpus: float
    instance_uuid: str | None = None


def record(connection_url):
    """Begin to write down the changes of a database."""
    engine = sa.create_engine(connection_url)
    kind = engine.url.get_backend_name()
    number = 'DOUBLE' if kind == 'mysql' else 'DOUBLE PRECISION'
    with engine.begin() as connection:
        connection.exec_driver_sql(_TABLE.format(
            serial=_SERIAL[kind], number=number))
        for event in ('INSERT', 'UPDATE'):
            for statement in _TRIGGERS[kind]:
                connection.exec_driver_sql(
                    statement.format(event=event, note=_NOTE))
    engine.dispose()


def read(connection_url):
    """All changes, in the order of their commits."""
    engine = sa.create_engine(connection_url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text(
            'SELECT generation, group_id, row_index, state, host, vcpus, '
            'instance_uuid FROM history ORDER BY generation, id')).all()
    engine.dispose()
    return [Change(*row) for row in rows]


def count_empty_groups(connection_url):
    """Groups that live though no VM is a member."""
    engine = sa.create_engine(connection_url)
    with engine.connect() as connection:
        count = connection.execute(sa.text(
            "SELECT count(*) FROM groups g WHERE live_key = '' AND NOT EXISTS "
            '(SELECT 1 FROM members m WHERE m.group_id = g.id AND '
            'm.instance_uuid IS NOT NULL)')).scalar()
    engine.dispose()
    return count


def leaving(changes, departures):
    """Add to the changes that VMs left hosts before the database was told.

    :param departures: instance, its host, and the generation when it left.
    """
    rows = {change.instance_uuid: change for change in changes}
    return sorted([*changes, *(
        dataclasses.replace(rows[instance], generation=generation + 0.5,
                            state='left', host=host, vcpus=0.0)
        for instance, host, generation in departures if instance in rows)],
        key=lambda change: change.generation)


@dataclasses.dataclass(frozen=True)
class Overbooked:
    """A commit after which a host carries more than it has.

    :ivar is_novas: nothing but VMs that run came to the host by it: Nova built
        them there, whatever was reserved.
    """

    generation: int
    host: str
    booked: float
    capacity: float
    is_novas: bool
    rows: tuple


def overbooked(changes, capacities):
    """The commits that put more onto a host than its capacity.

    A host that stays above its capacity is reported once for each commit
    that adds to it.

    :param changes: in the order of their commits.
    :param capacities: vcpus per host.
    """
    members, found = {}, []
    booked = dict.fromkeys(capacities, 0.0)
    by_commit = {}
    for change in changes:
        by_commit.setdefault(change.generation, []).append(change)
    for generation, commit in sorted(by_commit.items()):
        before, came = dict(booked), {}
        for change in commit:
            key = change.group_id, change.row_index
            old = members.get(key)
            if (old is not None and old.state == 'left' and (
                    change.instance_uuid, change.host) == (
                        old.instance_uuid, old.host)):
                continue
            if old is not None and old.host is not None:
                booked[old.host] -= old.vcpus
            members[key] = change
            if change.host is not None:
                booked[change.host] += change.vcpus
                came.setdefault(change.host, []).append(change)
        for host, arrivals in came.items():
            if booked[host] > max(capacities[host], before[host]):
                found.append(Overbooked(
                    generation, host, booked[host], capacities[host],
                    all(change.state == 'running' for change in arrivals),
                    tuple((m.group_id[:8], m.row_index, m.state,
                           m.generation) for m in members.values()
                          if m.host == host)))
    return found


def neighbours(changes):
    """Ids of the groups of which two members were on one host at some time.
    """
    hosts, found = {}, set()
    for change in changes:
        rows = hosts.setdefault(change.group_id, {})
        rows[change.row_index] = change.host
        used = [host for host in rows.values() if host is not None]
        if len(set(used)) < len(used):
            found.add(change.group_id)
    return found


def final(changes):
    """(host, state) of each instance that a member has at the end."""
    members = {}
    for change in changes:
        members[change.group_id, change.row_index] = change
    return {change.instance_uuid: (change.host, change.state)
            for change in members.values()
            if change.instance_uuid is not None}
