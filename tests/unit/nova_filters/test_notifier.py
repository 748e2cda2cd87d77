# SPDX-License-Identifier: Apache-2.0

"""The notification driver, as oslo.messaging loads it."""

import time

from oslo_config import cfg
import oslo_messaging
import pytest

from nova_filters import conf as virtco_conf
from nova_filters import connection
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
    notifier = oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf, url='fake://'),
        'nova-compute:h1', driver='virtco_http',
        topics=['versioned_notifications'])
    notifier.info({}, 'instance.create.start', PAYLOAD)
    notifier.info({}, 'compute.instance.create.end', {'legacy': 1})
    notifier.info({}, 'service.update', PAYLOAD)
    notifier.error({}, 'compute_task.build_instances.error', PAYLOAD)
    for _ in range(50):
        notifier.info({}, 'instance.create.end', PAYLOAD)
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
    queue.stop()


@pytest.mark.parametrize('mode, again', [
    ('error', True), ('close', True), ('refusal', False)])
def test_what_is_tried_again(controller, mode, again):
    link = connection.Connection(make_conf(controller.url))
    queue = sender.Sender(link, queue_size=9, timeout_s=5.0)
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
