# SPDX-License-Identifier: Apache-2.0

"""Whether a server has such metadata, in databases as Nova makes them."""

import contextlib
import types

from nova import context as nova_context
from nova import exception as nova_exception
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import models as main_models
from nova.objects import build_request
from nova.objects import instance
from nova.objects import instance_mapping
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy import pool

from nova_filters import metadata_query
from nova_filters import request
from tests.unit.nova_filters import test_request


@pytest.fixture(scope='module')
def engine():
    found = sa.create_engine('sqlite://', poolclass=pool.StaticPool,
                             connect_args={'check_same_thread': False})
    requests = api_models.BuildRequest.__table__
    metadata = main_models.InstanceMetadata.__table__
    with found.begin() as connection:
        for table in (requests, metadata):
            sa.Table(table.name, sa.MetaData(), *(
                sa.Column(column.name, column.type,
                          primary_key=column.primary_key)
                for column in table.columns)).create(connection)
        connection.execute(sa.insert(requests), [
            {'instance_uuid': 'with', 'project_id': 'p',
             'instance': '{"metadata": {"virtco:coflow": "a"}}'},
            {'instance_uuid': 'without', 'project_id': 'p',
             'instance': '{"metadata": {"role": "virtual"}}'}])
        connection.execute(sa.insert(metadata), [
            {'instance_uuid': uuid, 'key': key, 'value': '1',
             'deleted': deleted} for uuid, key, deleted in (
                 ('runs', 'role', 0), ('runs', 'virtco:index', 0),
                 ('plain', 'role', 0), ('gone', 'virtco:index', 7))])
    yield found
    found.dispose()


@pytest.fixture
def cloud(engine, monkeypatch):
    """Cells by instance; ``asked`` are those that were looked for there."""
    found = types.SimpleNamespace(cells={}, asked=[])

    def mapping(_context, uuid):
        found.asked.append(uuid)
        if uuid not in found.cells:
            raise nova_exception.InstanceMappingNotFound(uuid=uuid)
        return types.SimpleNamespace(cell_mapping=found.cells[uuid])

    @contextlib.contextmanager
    def target_cell(_context, cell):
        yield f'in {cell}'

    monkeypatch.setattr(api_db, 'context_manager', types.SimpleNamespace(
        reader=types.SimpleNamespace(get_engine=lambda: engine)))
    monkeypatch.setattr(instance_mapping.InstanceMapping,
                        'get_by_instance_uuid', mapping)
    monkeypatch.setattr(nova_context, 'target_cell', target_cell)
    return found


@pytest.mark.parametrize(('uuid', 'found'), [('with', True),
                                             ('without', False)])
def test_a_server_that_is_built_is_in_its_request(cloud, uuid, found):
    assert metadata_query.has_virtco_keys(None, uuid) is found
    assert cloud.asked == []


def test_a_server_that_runs_is_in_its_cell(cloud, monkeypatch):
    seen = []

    def mentions(context, uuid):
        seen.append((context, uuid))
        return uuid == 'runs'

    monkeypatch.setattr(metadata_query, '_metadata_mentions', mentions)
    cloud.cells = {'runs': 'cell1', 'plain': 'cell1', 'nowhere': None}
    assert metadata_query.has_virtco_keys(None, 'runs') is True
    assert metadata_query.has_virtco_keys(None, 'plain') is False
    for uuid in ('nowhere', 'stranger'):
        assert metadata_query.has_virtco_keys(None, uuid) is False
    assert seen == [('in cell1', 'runs'), ('in cell1', 'plain')]
    assert cloud.asked == ['runs', 'plain', 'nowhere', 'stranger']


@pytest.mark.parametrize(('uuid', 'found'), [
    ('runs', True), ('plain', False), ('gone', False), ('x', False)])
def test_keys_of_a_server_that_runs(engine, uuid, found):
    with orm.Session(engine) as session:
        assert metadata_query._metadata_mentions.__wrapped__(
            types.SimpleNamespace(session=session), uuid) is found


def test_a_server_is_read_where_it_is(cloud, monkeypatch, caplog):
    def of_request(_context, uuid):
        if uuid != 'built':
            raise nova_exception.BuildRequestNotFound(uuid=uuid)
        return types.SimpleNamespace(instance='of the request')

    monkeypatch.setattr(build_request.BuildRequest,
                        'get_by_instance_uuid', of_request)
    monkeypatch.setattr(
        instance.Instance, 'get_by_uuid',
        lambda context, uuid, expected_attrs: (context, uuid,
                                               expected_attrs))
    cloud.cells = {'runs': 'cell1', 'nowhere': None}

    def read(uuid):
        return request._read_instance(test_request.make_spec(
            instance_uuid=uuid))

    assert read('built') == 'of the request' and cloud.asked == []
    assert read('runs') == ('in cell1', 'runs', ['metadata'])
    assert read('nowhere') is None and caplog.messages == []
    # What cannot be read is no reason to fail.
    assert read('stranger') is None and 'stranger' in caplog.text
