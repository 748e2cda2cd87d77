# SPDX-License-Identifier: Apache-2.0

"""Whether a server has ``virtco:`` metadata, by one cheap query.

Nova's own ``BuildRequest`` object takes three times as long to load, and
every server of the cloud would pay for it.

This is the only module that knows ``nova.db``, which Nova may change with any
release. What it uses, and the releases of Nova that have it; queries ran with
33 and 34:

=============================================  ===========
``nova.db.api.api.context_manager``            31 to 34
``nova.db.api.models.BuildRequest``            31 to 34
``nova.db.main.api.pick_context_manager_...``  31 to 34
``nova.db.main.models.InstanceMetadata``       31 to 34
=============================================  ===========

Where one of them is missing, the filter logs it and server metadata is not
read; scheduler hints still are.
"""

from typing import Any

from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models as main_models
import sqlalchemy as sa

from virtco import hints

_REQUESTS = api_models.BuildRequest.__table__
_MENTIONS = sa.select(
    _REQUESTS.c.instance.like(f'%{hints.PREFIX}%')).where(
        _REQUESTS.c.instance_uuid == sa.bindparam('uuid'))


def has_virtco_keys(context: Any, instance_uuid: str) -> bool:
    """Query a server that is being built or, for a move, one that runs."""
    engine = api_db.context_manager.reader.get_engine()
    with engine.connect() as connection:
        row = connection.execute(_MENTIONS, {'uuid': instance_uuid}).first()
    if row is None:
        return _instance_mentions(context, instance_uuid)
    return bool(row[0])


def _instance_mentions(context: Any, instance_uuid: str) -> bool:
    """Return whether the stored metadata of an instance has a hint."""
    try:
        mapping = objects.InstanceMapping.get_by_instance_uuid(
            context, instance_uuid)
    except nova_exception.InstanceMappingNotFound:
        return False
    if mapping.cell_mapping is None:
        return False
    with nova_context.target_cell(context, mapping.cell_mapping) as cell:
        return bool(_metadata_mentions(cell, instance_uuid))


@main_db.pick_context_manager_reader
def _metadata_mentions(context: Any, instance_uuid: str) -> bool:
    model = main_models.InstanceMetadata
    found = context.session.query(model.id).filter(
        model.instance_uuid == instance_uuid, model.deleted == 0,
        model.key.like(f'{hints.PREFIX}%')).first()
    return found is not None
