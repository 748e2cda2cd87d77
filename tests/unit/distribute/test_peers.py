# SPDX-License-Identifier: Apache-2.0

"""Connections of peers: processes of the controller, and relays."""

import pytest

from tests.unit import made
from tests.unit.distribute import ends
from virtco import exception
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import tickets
from virtco.wire import frames
from virtco.wire import messages


def hello(host='h1', **values):
    return messages.Hello(frames.VERSION, host, **values)


def test_a_peer_joins(run):
    one = run(ends.End)
    one.join()
    assert one.hub.take() == [('joined', 'p1')]
    assert one.connection.peer.name == 'p1' and one.connection.peer.may_lead
    assert one.connection.seat is None and one.connection.seats == []
    assert one.transport.limits == [(1, 0), (10_000, None)]
    one.say('here', has_database=False)
    one.say('changed', groups=['g'])
    assert one.hub.take() == [('told', 'p1', messages.Here(False)),
                              ('told', 'p1', messages.Changed(['g']))]
    assert one.heard() == [] and one.transport.end is None


def test_a_peer_says_that_it_never_leads(run):
    assert not run(lambda: ends.End().join(
        may_lead=False)).connection.peer.may_lead


@pytest.mark.parametrize('values, why', [
    ({'version': frames.VERSION + 1}, 'version'), ({'epoch': 5},
     'epoch: expected at most 4'),
    ({'ticket': ''}, 'to join as p1'),
    ({'ticket': tickets.of_host(ends.KEY, 'p1')}, 'to join as p1'),
    ({'name': 'p2'}, 'to join as p2'), ({'name': ''}, 'name')])
def test_a_peer_is_refused(run, values, why):
    one = run(lambda: ends.End().join(**values))
    ((kind, who, said),) = one.hub.take()
    assert (kind, who) == ('refused', '10.0.0.1') and why in said
    assert one.heard() == ['refused'] and one.transport.end == 'closed'
    assert one.connection.peer is None


def test_a_leader_that_may_be_deposed_hears_its_peers(run):
    """They tell whether it goes on; an edge module does not."""
    one = run(lambda: ends.End(elsewhere='').join())
    one.say('here', has_database=False)
    assert one.hub.take() == [('joined', 'p1'),
                              ('told', 'p1', messages.Here(False))]
    assert run(lambda: ends.End(elsewhere='').hello()).connection.seat is None
    assert run(lambda: ends.End(elsewhere='a:1').join()
               ).connection.peer is None


def test_without_a_key_no_peer_joins(run):
    one = run(lambda: ends.End(peer_key='').join(
        ticket=tickets.of_peer('', 'p1')))
    assert one.connection.peer is None and one.transport.end == 'closed'


def test_an_older_epoch_joins(run):
    assert run(lambda: ends.End().join(epoch=3)).connection.peer is not None


def test_a_peer_that_says_no_message_is_let_go(relay):
    relay.say('report', report=made.report())
    ((kind, name, why),) = relay.hub.take()
    assert (kind, name) == ('refused', 'p1') and 'type' in why
    (told,) = relay.take()
    assert told['type'] == 'refused' and relay.transport.end == 'closed'


def test_a_relay_speaks_for_its_hosts(relay):
    relay.hello_for('h1', generation=3)
    relay.hello_for('h2')
    assert relay.hub.take() == [('opened', 'h1', hello(generation=3)),
                                ('opened', 'h2', hello('h2'))]
    first, second = relay.connection.seats
    assert (first.host, second.host) == ('h1', 'h2')
    assert first.peer is relay.connection.peer
    assert first.session.sent == 3
    report = made.report()
    relay.say_for('h2', 'report', report=report)
    assert relay.hub.take() == [
        ('heard', 'h2', session.Report(report, True),
         ends.payload_of('report', report=report))]
    assert second.session.report == report and first.session.report is None
    first.write(made.frame('alive', epoch=7))
    assert relay.take() == [('h1', {'type': 'alive', 'epoch': 7})]
    # Its heartbeats come by themselves, and are no frame of an edge.
    relay.say_for('h1', 'heartbeat')
    assert relay.take() == [('h1', {'type': 'resend'})]
    relay.connection.pause_writing()
    assert not first.connection.is_writable
    first.write(made.frame('alive', epoch=7))
    assert relay.take() == []


def test_a_host_that_left_its_relay_is_gone(relay):
    relay.hello_for('h1')
    relay.hello_for('h2')
    relay.hub.take()
    relay.gone('h1')
    relay.gone('h9')
    assert relay.hub.take() == [('left', 'h1')]
    assert [seat.host for seat in relay.connection.seats] == ['h2']
    relay.hello_for('h1')
    assert relay.hub.take() == [('opened', 'h1', hello())]


def test_a_host_that_comes_back_by_its_relay_begins_again(relay):
    relay.hello_for('h1', generation=3)
    relay.say_for('h1', 'report', report=made.report())
    relay.hub.take()
    relay.hello_for('h1', generation=5)
    assert relay.hub.take() == [('left', 'h1'),
                                ('opened', 'h1', hello(generation=5))]
    (seat,) = relay.connection.seats
    assert seat.session.sent == 5 and seat.session.report is None
    assert relay.take() == []


@pytest.mark.parametrize('say, why', [
    (lambda one: one.say_for('h1', 'ack', generation=1), 'one hello'),
    (lambda one: one.hello_for('h1', named='h2'), 'to speak for h2'),
    (lambda one: one.hello_for('h1', epoch=5), 'epoch: expected at most 4'),
    (lambda one: one.say_for('h1', 'nothing'), 'type')])
def test_a_host_that_must_not_come_is_refused_alone(relay, say, why):
    say(relay)
    ((kind, host, said),) = relay.hub.take()
    assert (kind, host) == ('refused', 'h1') and why in said
    assert relay.take() == [
        ('h1', {'type': 'refused', 'why': said, 'leader': ''})]
    assert relay.connection.seats == [] and relay.transport.end is None


def test_a_host_that_breaks_the_protocol_is_refused_alone(relay):
    relay.hello_for('h1')
    relay.hello_for('h2')
    relay.hub.take()
    relay.say_for('h1', 'report', report=7)
    refused, left = relay.hub.take()
    assert refused[:2] == ('refused', 'h1') and left == ('left', 'h1')
    ((host, told),) = relay.take()
    assert (host, told['type']) == ('h1', 'refused')
    assert [seat.host for seat in relay.connection.seats] == ['h2']
    assert relay.transport.end is None


@pytest.mark.parametrize(('kind', 'values'), [
    ('forgotten', {'hosts': ['h1']}), ('forgiven', {'project_id': 'p'})])
def test_a_relay_does_not_say_what_operators_do(relay, kind, values):
    relay.say(kind, **values)
    assert relay.hub.take()[-1][0] == 'told'
    relay.hello_for('h1')
    relay.hub.take()
    relay.say(kind, **values)
    assert 'told' not in [note[0] for note in relay.hub.take()]
    assert relay.transport.end == 'closed'


def test_a_host_of_a_relay_that_owes_is_paused_alone(relay):
    """By its own name, whether or not what it says is taken."""
    relay.hello_for('h1')
    relay.hello_for('h2')
    relay.hub.charged.clear()
    relay.hub.waits_s = [7.0, 0.0, 8.0]
    for host, values in (('h1', {'generation': 1}), ('h2', {'generation': 1}),
                         ('h1', {})):
        relay.say_for(host, 'ack', **values)
    assert relay.hub.charged == [
        (host, len(ends.payload_of('ack', **values)), 0.0)
        for host, values in (('h1', {'generation': 1}),
                             ('h2', {'generation': 1}), ('h1', {}))]
    first, refused, last = relay.take()
    assert first == ('h1', {'type': 'pause', 'wait_s': 7.0})
    assert refused[1]['type'] == 'refused'
    assert last == ('h1', {'type': 'pause', 'wait_s': 8.0})
    assert not relay.connection.is_paused and relay.transport.is_reading


def test_a_seat_of_a_relay_is_refused_without_its_connection(relay):
    relay.hello_for('h1')
    relay.hub.take()
    relay.connection.seats[0].refuse('why')
    assert relay.hub.take() == [('refused', 'h1', 'why'), ('left', 'h1')]
    assert relay.take() == [
        ('h1', {'type': 'refused', 'why': 'why', 'leader': ''})]
    assert relay.transport.end is None


def test_an_envelope_may_be_as_much_longer(relay):
    relay.hello_for('h1')
    relay.hub.take()
    text = 'x' * (10_000 - len(ends.payload_of('heartbeat', text='')))
    relay.say_for('h1', 'heartbeat', text=text)
    assert relay.transport.end is None and relay.take()
    assert connection.ENVELOPE_BYTES >= 2 + 255
    relay.say('changed', groups=['x' * (
        10_000 + connection.ENVELOPE_BYTES)])
    assert relay.transport.end == 'closed'


def test_a_broken_envelope_ends_the_relay(relay):
    relay.come(frames.frame(b'\0\xffh1'))
    assert [note[:2] for note in relay.hub.take()] == [('refused', 'p1')]
    assert relay.transport.end == 'closed'


def test_heartbeats_of_a_peer_are_none(relay):
    """Only an edge module's own connection has the short way."""
    relay.say('heartbeat')
    assert [note[0] for note in relay.hub.take()] == ['refused']


def test_a_peer_is_written_and_refused_with_its_connection(relay):
    peer = relay.connection.peer
    assert peer.connection is relay.connection
    peer.connection.refuse('why')
    assert relay.take()[-1]['why'] == 'why'
    assert relay.transport.end == 'closed'


def test_a_peer_that_is_refused_is_named(relay):
    relay.connection.refuse('why', '10.0.0.9:1')
    assert relay.hub.take() == [('refused', 'p1', 'why')]
    assert relay.take() == [
        {'type': 'refused', 'why': 'why', 'leader': '10.0.0.9:1'}]


def test_an_edge_is_no_peer(edge):
    edge.join()
    ((kind, _, why),) = edge.hub.take()
    assert kind == 'refused' and 'one hello' in why
    with pytest.raises(exception.Invalid):
        connection.Peer(edge.hub, edge.connection, 'p').take(b'{}')
