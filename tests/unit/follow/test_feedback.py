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

"""What tenants read on their servers."""

import pytest

from tests.unit.db import test_db
from virtco.db import models
from virtco import exception
from virtco.follow import feedback
from virtco import hints
from virtco.model import states

database = test_db.database


class Nova:
    def __init__(self):
        self.metadata = {}
        self.calls = 0
        self.error = None

    def set_metadata(self, uuid, values):
        self.calls += 1
        if self.error:
            raise self.error
        self.metadata.setdefault(uuid, {}).update(values)


@pytest.fixture
def told(database):
    with database.writer() as session:
        session.add(test_db.group('sort'))
        session.flush()
        session.add_all([
            test_db.member('p-sort', 0, instance_uuid='vm-0', host='h0',
                           state=states.MemberState.RUNNING),
            test_db.member('p-sort', 1, instance_uuid='vm-1', host='h1',
                           state=states.MemberState.RESERVED),
            test_db.coflow('p-sort', cct_s=2.0)])
    return feedback.Feedback(database, Nova())


def test_the_group_and_both_ccts(told, database):
    assert told.turn() == 1
    nova = told._nova
    assert nova.metadata == {'vm-0': {
        'virtco.group': 'sort', 'virtco.row': '0',
        'virtco.planned_cct_s': '2.000'}}
    assert told.turn() == 0
    with database.writer() as session:
        session.get(models.Coflow, 'c-p-sort').measured_cct_s = 2.5
    assert told.turn() == 1
    assert nova.metadata['vm-0']['virtco.measured_cct_s'] == '2.500'
    assert hints.select(nova.metadata['vm-0']) == {}


def test_a_nova_that_is_away(told, caplog):
    told._nova.error = exception.NovaUnavailable(why='HTTP 503')
    assert (told.turn(), told.turn()) == (0, 0)
    assert caplog.text.count('not told') == 1
    told._nova.error = None
    assert told.turn() == 1
    assert told._nova.metadata
