# SPDX-License-Identifier: Apache-2.0

"""What the comparison of a schema with its models does not look at."""

import sqlalchemy as sa

from virtco.db import models

#: Columns that make a row unique, where they are not one of its own name.
KEYS = {
    'cluster': ['id'], 'groups': ['id'], 'coflows': ['id'],
    'members': ['group_id', 'row_index'], 'claims': ['instance_uuid'],
    'profile_hours': ['group_id', 'hour'], 'placements': ['instance_uuid'],
    'decisions': ['group_id'], 'hosts': ['host'],
    'readings': ['src', 'dst', 'slot'], 'events': ['id'],
    'projects': ['project_id'], 'settings': ['name'],
    'advice': ['instance_uuid'], 'drains': ['host'], 'changes': ['id'],
    'orders': ['id'], 'findings': ['subject', 'kind'],
    'topology_planes': ['name'], 'leader': ['id']}

#: What a row has that nobody gave it a value.
DEFAULTS = {
    'members': {'vcpus': 0, 'memory_mb': 0, 'disk_gb': 0,
                'egress_burst_bytes': 0, 'ingress_burst_bytes': 0},
    'coflows': {'position': 0, 'iterations': 1, 'iteration': 0,
                'rank_hint': False, 'is_estimated': False, 'sent_bytes': 0,
                'priority_class': 0, 'weight': 1, 'is_promised': False},
    'projects': {'priority_class': 0, 'weight': 1, 'debt_bytes': 0}}


def _tables():
    return models.Base.metadata.tables


def test_keys_of_models_and_of_the_schema(database):
    inspector = sa.inspect(database.engine)
    for name, table in _tables().items():
        assert [c.name for c in table.primary_key] == KEYS[name]
        assert inspector.get_pk_constraint(name)[
            'constrained_columns'] == KEYS[name]


def test_only_the_order_of_what_happened_is_counted_by_the_database():
    assert {name for name, table in _tables().items()
            if table.autoincrement_column is not None} == {
        'events', 'changes'}


def test_numbers_that_nobody_gave():
    found = {name: {c.name: c.default.arg for c in table.columns
                    if c.default is not None and c.default.arg not in
                    ('', '[]', '{}')}
             for name, table in _tables().items()}
    assert {name: values for name, values in found.items()
            if values} == DEFAULTS
