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

"""What an edge may say, in which order, and for whom."""

import pytest

from virtco.distribute import messages
from virtco.distribute import session
from virtco import exception

REPORT = {'epoch': 'e', 'applied_generation': 3, 'ports': [], 'coflows': [],
          'link': {'egress_bps': 1e9, 'ingress_bps': 1e9},
          'uplink_sent_bytes': 0}


def _say(one, kind, **fields):
    return one.take({'type': kind, **fields})


def _new(may=lambda host: True, epoch=0):
    return session.Session(messages.check, may, epoch)


@pytest.fixture
def one():
    found = _new()
    _say(found, 'hello', versions=[1, 1], host='h1', generation=3)
    return found


def test_a_hello_opens():
    one = _new()
    assert _say(one, 'hello', versions=[1, 7], host='h1', generation=3,
                epoch=0) == session.Hello(3)
    assert (one.host, one.version, one.sent) == ('h1', 1, 3)


@pytest.mark.parametrize('fields, error', [
    ({'versions': [2, 3]}, 'versions.*from 1 to 1'),
    ({'versions': [1]}, 'versions'),
    ({'versions': [1, 1], 'epoch': 1}, 'epoch: 1.*that of this controller'),
    ({'versions': [1, 1], 'generation': -1}, 'generation: -1'),
    ({'versions': [1, 1], 'host': '../h1'}, 'host'),
    ({'versions': [1, 1], 'host': 'x' * 256}, 'host')])
def test_a_hello_that_is_refused(fields, error):
    one = _new()
    with pytest.raises(exception.Invalid, match=error):
        _say(one, 'hello', **({'host': 'h1'} | fields))
    assert one.host is None


def test_nobody_speaks_for_another_host(one):
    with pytest.raises(exception.Forbidden, match='h2'):
        _say(_new(lambda host: host == 'h1'), 'hello', versions=[1, 1],
             host='h2')
    with pytest.raises(exception.Forbidden, match='h2'):
        _say(one, 'measurement', measurement={
            'probe_id': 'p', 'src': 'h2', 'dst': 'h1', 'rate_bps': 1e9})


def test_a_measurement_of_its_own(one):
    found = {'probe_id': 'p', 'src': 'h1', 'dst': 'h2', 'rate_bps': 1e9}
    assert _say(one, 'measurement', measurement=found) == (
        session.Measured(found))


@pytest.mark.parametrize('kind', ['report', 'ack', 'heartbeat', 'what'])
def test_a_hello_comes_first(kind):
    with pytest.raises(exception.Invalid, match='type'):
        _say(_new(), kind)


def test_one_hello_is_enough(one):
    with pytest.raises(exception.Invalid, match='type: hello'):
        _say(one, 'hello', versions=[1, 1], host='h1')


def test_reports_are_whole_then_deltas(one):
    assert _say(one, 'report', report=REPORT) == session.Report(REPORT, True)
    row = {'coflow_id': 'c', 'sent_bytes': 7}
    found = _say(one, 'delta', set={'uplink_sent_bytes': 9},
                 rows={'coflows': {'set': [row]}})
    assert found == session.Report(
        REPORT | {'uplink_sent_bytes': 9, 'coflows': [row]}, True)
    assert _say(one, 'heartbeat') == session.Report(found.report, False)


def test_a_delta_of_what_is_not_there_asks_for_the_whole(one):
    delta = {'rows': {'coflows': {'gone': [['c']]}}}
    assert _say(one, 'delta', **delta).report is None
    _say(one, 'report', report=REPORT)
    assert _say(one, 'delta', **delta).report is None
    assert _say(one, 'heartbeat').report is None
    assert _say(one, 'report', report=REPORT).report == REPORT


@pytest.mark.parametrize('kind, fields, field', [
    ('report', {'report': REPORT | {'ports': 7}}, 'report.ports'),
    ('delta', {'set': {'uplink_sent_bytes': -1}}, 'set.uplink_sent_bytes'),
    ('delta', {'rows': {'coflows': {'set': [7]}}}, 'rows.coflows.set'),
    ('delta', {'set': {'coflows': [7]}}, 'set.coflows'),
    ('delta', {'rows': {'ports': {}}}, 'rows.ports'),
    ('delta', {'rows': {'coflows': {'gone': [['c', 'd']]}}},
     'rows.coflows.gone'),
    ('ack', {}, 'generation'),
    ('measurement', {'measurement': {'src': 'h1'}}, 'measurement')])
def test_a_message_keeps_to_its_schema(one, kind, fields, field):
    _say(one, 'report', report=REPORT)
    with pytest.raises(exception.Invalid) as caught:
        _say(one, kind, **fields)
    assert caught.value.kwargs['field'].startswith(field)


def test_an_ack_is_noted(one):
    assert _say(one, 'ack', generation=5) == session.Ack(5)
    assert one.acked == 5
