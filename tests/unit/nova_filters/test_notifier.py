# SPDX-License-Identifier: Apache-2.0

"""The notification driver, as oslo.messaging loads it."""

import time
import types

from oslo_config import cfg
import oslo_messaging
import pytest

from nova_filters import controller_connection as connection
from nova_filters import notifier
from nova_filters import plugin_options as virtco_conf
from nova_filters import sender
from tests import patience
from tests.unit.nova_filters import scripted_controller

PAYLOAD = {'nova_object.name': 'InstanceCreatePayload',
           'nova_object.data': {'uuid': 'u', 'host': 'h1'}}


@pytest.fixture
def controller():
    with scripted_controller.ScriptedController() as fixture:
        yield fixture


def make_conf(url):
    conf = cfg.ConfigOpts()
    virtco_conf.register_opts(conf)
    conf([])
    conf.set_override('controller_url', url, group='virtco')
    return conf


def received(controller, n_messages, last=None):
    """Types of all events, when there are so many and that is the last."""
    def found():
        types = [body['event_type'] for body in controller.notifications]
        return (len(types) >= n_messages and last in (None, types[-1])
                and types)

    return patience.wait_for(found, f'{n_messages} messages')


def test_versioned_instance_notifications_arrive_in_order(controller):
    conf = make_conf(controller.url)
    bus = oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf, url='fake://'),
        'nova-compute:h1', driver='virtco_http',
        topics=['versioned_notifications'])
    bus.info({}, 'instance.create.start', PAYLOAD)
    bus.info({}, 'compute.instance.create.end', {'legacy': 1})
    bus.info({}, 'service.update', PAYLOAD)
    bus.error({}, 'compute_task.build_instances.error', PAYLOAD)
    for _ in range(50):
        bus.info({}, 'instance.create.end', PAYLOAD)
    assert received(controller, 52) == (
        ['instance.create.start', 'compute_task.build_instances.error']
        + ['instance.create.end'] * 50)
    assert controller.notifications[0]['payload'] == PAYLOAD


def test_nobody_waits_and_the_latest_are_kept(controller, caplog):
    link = connection.Connection(make_conf(controller.url))
    queue = sender.Sender(link, queue_size=3, timeout_s=0.2)
    controller.mode = 'hang'
    watch = patience.Stopwatch()
    for number in range(20):
        queue.put('POST', '/v1/notifications', {'event_type': str(number)})
    # One who waited for each would take 20 times as long as it hangs.
    assert watch.seconds() < 20 * 0.2 / 2
    assert 'lost' in caplog.text
    controller.mode = 'plan'
    assert received(controller, 3, '19')[-3:] == ['17', '18', '19']


@pytest.mark.parametrize('mode, again', [
    ('error', True), ('close', True), ('drip_body', True),
    ('refusal', False)])
def test_what_is_tried_again(controller, mode, again):
    """An answer that drips in is none, or nothing else would be told for as
    long.
    """
    link = connection.Connection(make_conf(controller.url))
    queue = sender.Sender(link, queue_size=9, timeout_s=2.0)
    controller.mode = mode
    queue.put('PUT', '/v1/placements/first', {})
    patience.wait_for(lambda: controller.calls, 'a call')
    controller.mode = 'plan'
    queue.put('POST', '/v1/notifications', {'event_type': 'second'})
    received(controller, 1)
    attempts = [uuid for uuid, _body in controller.calls]
    assert (len(attempts) > 1) == again, attempts


def test_old_news_is_no_news(controller):
    link = connection.Connection(make_conf(controller.url))
    queue = sender.Sender(link, queue_size=9, timeout_s=5.0)
    queue.put('PUT', '/v1/placements/old', {}, max_age_s=-1.0)
    queue.put('POST', '/v1/notifications', {'event_type': 'new'})
    assert received(controller, 1) == ['new']
    assert controller.calls == []


class Link:
    """Raises what it was given, else notes what was sent."""

    url = 'http://link'

    def __init__(self, error=None):
        self.error, self.sent = error, []

    def send(self, *message):
        if self.error is not None:
            raise self.error
        self.sent.append(message)


@pytest.mark.parametrize(('error', 'is_over'), [
    (None, True), (connection.Unanswered(url='u', why='w'), False),
    (connection.Refused(url='u', why='w', status=500), False),
    (connection.Refused(url='u', why='w', status=499), True),
    (connection.Refused(url='u', why='w', status=429), False),
    (connection.Refused(url='u', why='w'), True),
    (RuntimeError('a defect'), True)])
def test_what_became_of_a_message(error, is_over):
    link = Link(error)
    found = sender.Sender(link, queue_size=1, timeout_s=3.0)
    late = time.monotonic() + 1e6
    assert found._deliver(('PUT', '/x', {}, late)) is is_over
    assert link.sent == ([] if error else [('PUT', '/x', {}, 3.0)])
    # Too old: it is over without a call.
    assert found._deliver(('PUT', '/x', {}, 0.0))
    assert len(link.sent) == (0 if error else 1)


def test_a_driver_makes_one_sender():
    conf = make_conf('http://127.0.0.1:1')
    driver = notifier.HTTPDriver(conf, [], None)
    found = driver._get_sender()
    assert driver._get_sender() is found
    assert (found._queue_size, found._timeout_s) == (10_000, 5.0)


@pytest.mark.parametrize(('message', 'is_wanted'), [
    ({'event_type': 'instance.create.end', 'payload': PAYLOAD}, True),
    ({'event_type': 'compute_task.x', 'payload': PAYLOAD}, True),
    ({'event_type': 'service.update', 'payload': PAYLOAD}, False),
    ({'event_type': 'instance.create.end', 'payload': {}}, False),
    ({'event_type': 'instance.create.end',
      'payload': 'nova_object.name'}, False),
    ({'payload': PAYLOAD}, False), ({'event_type': 'instance.x'}, False)])
def test_versioned_notifications_of_instances_are_wanted(message, is_wanted):
    assert notifier.HTTPDriver._wanted(message) is is_wanted


def test_a_notification_that_cannot_be_sent_is_no_end(caplog):
    driver = notifier.HTTPDriver(make_conf('http://127.0.0.1:1'), [], None)
    driver._get_sender = lambda: 1 / 0
    driver.notify({}, {'event_type': 'instance.x', 'payload': PAYLOAD},
                  'info', None)
    assert 'instance.x is dropped' in caplog.text


class Answers(Link):
    """Answers as it is told, one by one; then it takes what comes."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)

    def send(self, *message):
        self.error = self.errors.pop(0) if self.errors else None
        super().send(*message)


def test_pauses_double_until_it_is_there(caplog, monkeypatch):
    away = connection.Unanswered(url='u', why='w')
    link = Answers(*[away] * 8, None, away)
    found = sender.Sender(link, queue_size=9, timeout_s=3.0)
    pauses = []
    monkeypatch.setattr(sender, 'time', types.SimpleNamespace(
        monotonic=time.monotonic, sleep=pauses.append))
    for number in range(3):
        found.put('PUT', f'/{number}', {})
    patience.wait_for(lambda: len(link.sent) == 3, 'all messages')
    assert [path for _method, path, *_ in link.sent] == ['/0', '/1', '/2']
    assert list(filter(None, pauses)) == pytest.approx(
        [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 0.2])
    # Each outage is told once.
    assert caplog.text.count('wait for the virtco controller') == 2
    assert found._thread.daemon


def test_a_message_that_was_lost_meanwhile_takes_no_other_along():
    """The first is dropped for the last while it is sent."""
    link = Link()
    found = sender.Sender(link, queue_size=1, timeout_s=3.0)
    send = link.send

    def slow(*message):
        if message[1] == '/0':
            found.put('PUT', '/1', {})
        send(*message)

    link.send = slow
    found.put('PUT', '/0', {})
    patience.wait_for(lambda: len(link.sent) == 2, 'both')
    assert [path for _method, path, *_ in link.sent] == ['/0', '/1']
