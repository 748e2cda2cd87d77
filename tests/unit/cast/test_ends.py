# SPDX-License-Identifier: Apache-2.0

"""How a cast runs and ends, with transfers that the test makes up."""

import io
import json
import re
import threading
import types

import pytest
from rich import console

from tests import patience
from virtco import exception
from virtco_tenant.cast import command
from virtco_tenant.cast import groups
from virtco_tenant.cast import members
from virtco_tenant.cast import peers
from virtco_tenant.cast import receiving
from virtco_tenant.cast import sending
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents
from virtco_tenant.cast import tracker as trackers

KEY = 'k' * 16
URL = f'http://10.0.0.1:80/{KEY}'


class Transfer:
    """Notes what it is told; the test says what it has."""

    def __init__(self, torrent, directory, *, is_source, address, rate_bps):
        self.given = (directory, is_source, address, rate_bps)
        self.port = 7
        self.size_bytes = 1000
        self.names = ['one', 'two']
        self.error = None
        self.share = 0.0
        self.receive_bps, self.send_bps = 8e6, 16e6
        self.followed = []
        self.is_ended = False

    def follow(self, links, share):
        self.followed.append((links, share))

    def rates_bps(self):
        return {'a': 5e6}

    def end(self):
        self.is_ended = True


@pytest.fixture
def made(monkeypatch):
    """Transfers in the order in which they were made."""
    found = []

    def make(*args, **values):
        found.append(Transfer(*args, **values))
        return found[-1]

    monkeypatch.setattr(swarm, 'Transfer', make)
    return found


@pytest.fixture
def out():
    return console.Console(record=True, width=200, file=io.StringIO())


class Server:
    server_port = 4000
    is_down = False

    def shutdown(self):
        self.is_down = True


class Sender:
    """A cast's sender; each pause of its is a step of the test's."""

    def __init__(self, monkeypatch, out, path, made):
        self.monkeypatch, self.out, self.path = monkeypatch, out, path
        self.made = made
        self.server = Server()
        self.pauses = []
        self.served = None

    def run(self, *steps, words=()):
        left = list(steps)

        def serve(tracker, key, torrent, address):
            self.tracker = tracker
            self.served = key, torrent, address
            return self.server

        def pause(pause_s):
            self.pauses.append(pause_s)
            if left:
                left.pop(0)(self.tracker)

        self.monkeypatch.setattr(trackers, 'serve', serve)
        self.monkeypatch.setattr(sending.time, 'sleep', pause)
        args = command._parser().parse_args([
            'send', str(self.path), '--receivers', '2', '--name', 'src',
            '--address', '10.0.0.1', *words])
        return sending.send(args, self.out)


@pytest.fixture
def sender(monkeypatch, out, tmp_path, made):
    path = tmp_path / 'file'
    path.write_bytes(bytes(20_000))
    return Sender(monkeypatch, out, path, made)


def both(tracker, share=0.0, **values):
    for number, name in enumerate('ab'):
        tracker.ask(name, (f'10.0.1.{number}', 9), share=share, **values)


def all_here(tracker):
    both(tracker, 1.0)


def test_a_sender_serves_until_all_have_all(sender, out):
    assert sender.run(both, lambda tracker: both(tracker, 0.5),
                      all_here) == 0
    (own,) = sender.made
    assert own.given == (sender.path.parent, True, '10.0.0.1', 0)
    key, torrent, address = sender.served
    assert torrent == torrents.describe(sender.path)
    assert address == ('10.0.0.1', 0) and len(key) >= 16
    # Nobody is named before all are there; then it does not call.
    assert own.followed[0] == ([[], [], []], None)
    links, share = own.followed[1]
    assert {peer.name for level in links for peer in level} == {'a', 'b'}
    assert share is None
    # Each quarter of a second; at last until everybody has asked again.
    assert sender.pauses == [0.25] * 3 + [2.0]
    assert own.is_ended and sender.server.is_down
    text = out.export_text()
    assert (f'virtco-cast receive http://10.0.0.1:4000/{key} DIRECTORY'
            in text)
    assert 'All 2 have it after 0.' in text
    # Each has had half of it when that was shown last.
    assert '1.0/2.0 kB' in text and '2 of 2 here' in text


def test_what_a_sender_prints_may_be_copied(sender):
    """Neither a narrow terminal nor colours divide an address."""
    out = sender.out = console.Console(
        width=30, file=io.StringIO(), force_terminal=True)
    assert sender.run(both, all_here) == 0
    lines = out.file.getvalue().splitlines()
    key = sender.served[0]
    assert (f'On each other VM: virtco-cast receive http://10.0.0.1:4000/{key}'
            ' DIRECTORY') in lines
    assert ''.join(lines).startswith(f'Reading {sender.path} …')
    assert re.search(r'All 2 have it after \d+\.\d s\.', lines[-1])
    # 16 drawn bytes.
    assert len(key) == 22


def test_words_of_a_sender(sender, tmp_path):
    clusters = tmp_path / 'clusters'
    clusters.write_text('{"a": "r0", "b": "r1"}')
    history = tmp_path / 'history'
    assert sender.run(
        both, lambda tracker: tracker.ask(
            'b', ('10.0.1.1', 9), rates_bps={'a': 4e6}), all_here,
        words=['--plain', '--wait', '7', '--key', KEY, '--port', '80',
               '--rate', '8bit/s', '--cluster', 'r2', '--clusters',
               str(clusters), '--history', str(history)]) == 0
    key, _torrent, address = sender.served
    assert (key, address) == (KEY, ('10.0.0.1', 80))
    assert sender.made[0].given[3] == 8
    tracker = sender.tracker
    assert tracker._plan is peers.plan_plain
    assert (tracker._missed_s, tracker._absent_s) == (7, 7)
    assert {name: seen.cluster for name, seen in tracker._members.items()
            } == {'src': 'r2', 'a': 'r0', 'b': 'r1'}
    assert json.loads(history.read_text()) == [['a', 'b', 4e6]]


def test_a_sender_as_it_is_by_default(sender):
    assert sender.run(both, all_here) == 0
    assert sender.tracker._plan is peers.plan
    assert (sender.tracker._missed_s, sender.tracker._absent_s) == (60, 600)


def test_pauses_of_a_sender_follow_those_of_the_members(sender, monkeypatch):
    monkeypatch.setattr(trackers, 'POLL_S', 2.0)
    assert sender.run(both, all_here) == 0
    assert sender.pauses == [0.5, 0.5, 4.0]


class Probe:
    """A socket that knows the way, or none."""

    error = None
    asked = None

    def __init__(self, *_args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_args):
        pass

    def connect(self, address):
        if self.error is not None:
            raise self.error
        self.asked = address

    def getsockname(self):
        return ('10.0.0.5', 4711) if self.asked else ('0.0.0.0', 0)


def test_a_sender_names_its_address_on_the_default_route(monkeypatch):
    monkeypatch.setattr(sending.socket, 'socket', Probe)
    assert sending._own_address() == '10.0.0.5'
    monkeypatch.setattr(Probe, 'error', OSError(101, 'No route'))
    with pytest.raises(exception.Invalid, match='no route'):
        sending._own_address()


def test_a_cast_goes_on_without_a_controller(monkeypatch):
    def away(name):
        raise exception.ControllerUnavailable(url=f'{name}:80', why='[red]')

    monkeypatch.setattr(groups, 'Group', away)
    out = console.Console(width=200, file=io.StringIO(), force_terminal=True)
    assert sending._group('g', out) is None
    text = out.file.getvalue()
    assert text.startswith('Without racks: ') and '[red]' in text
    assert 'g:80' in text and '\x1b' not in text


def test_a_cast_of_a_group_is_announced(monkeypatch):
    class Group:
        told = ()

        def announce(self, name, left):
            self.told = name, left
            raise OSError('80 [red]')

    monkeypatch.setattr(groups, '_LOOK_S', 0.001)
    tracker = trackers.Tracker('src', 2, lambda: 0.0)
    tracker.ask('src', ('10.0.1.9', 9))
    both(tracker, 0.25)
    out = console.Console(width=200, file=io.StringIO(), force_terminal=True)
    group = Group()
    with sending._announced(group, 'src', tracker, 8.0, out):
        patience.wait_for(out.file.getvalue, 'the trouble')
    name, left = group.told
    assert name == 'cast-src'
    assert sum(left.values()) == pytest.approx(2 * 6.0)
    text = out.file.getvalue()
    assert text.endswith('80 [red]\n') and '\x1b' not in text


def test_what_is_left_is_of_those_that_lack_something():
    tracker = trackers.Tracker('src', 2, lambda: 0.0)
    tracker.ask('src', ('10.0.1.9', 9))
    tracker.ask('a', ('10.0.1.0', 9))
    assert sending._left('src', tracker, 8.0) is None
    both(tracker)
    tracker.ask('a', ('10.0.1.0', 9), share=1.0)
    tracker.ask('b', ('10.0.1.1', 9), share=0.25)
    left = sending._left('src', tracker, 8.0)
    assert {dst for _src, dst in left} == {frozenset({'b', '10.0.1.1'})}
    assert sum(left.values()) == pytest.approx(6.0)


def test_a_cast_without_a_group_is_announced_to_nobody(out):
    before = threading.active_count()
    with sending._announced(None, 'src', None, 1.0, out):
        assert threading.active_count() == before


def test_those_that_lack_something_are_told(sender):
    def give_up(tracker):
        tracker.ask('a', ('10.0.1.0', 9), share=1.0)
        tracker.ask('b', ('10.0.1.1', 9), failed='No\x1b space')

    with pytest.raises(sending.NotReceived,
                       match=r'^1 of 2 did not get all: b: No\? space\.$'):
        sender.run(both, give_up)
    assert sender.made[0].is_ended and sender.server.is_down
    assert sender.pauses[-1] == 2.0


def test_a_sender_that_cannot_read_tells_all(sender):
    def fail(_tracker):
        sender.made[0].error = 'file: gone'

    with pytest.raises(members.GivesUp, match='file: gone'):
        sender.run(both, fail)
    assert sender.tracker.ask('a', ('10.0.1.0', 9))['failed'] == 'file: gone'
    assert sender.pauses == [0.25, 0.25, 2.0]
    assert sender.made[0].is_ended and sender.server.is_down


def test_a_port_that_is_taken(sender):
    def refuse(*_args):
        raise OSError(98, 'Address in use')

    sender.run(both, all_here)
    sender.monkeypatch.setattr(trackers, 'serve', refuse)
    args = command._parser().parse_args([
        'send', str(sender.path), '--receivers', '2', '--port', '80'])
    with pytest.raises(exception.Invalid,
                       match='Address in use.*, got 0.0.0.0:80'):
        sending.send(args, sender.out)


class Receiver:
    """One whose tracker answers what the test says, one after the other."""

    def __init__(self, monkeypatch, out, directory, made):
        self.monkeypatch, self.out = monkeypatch, out
        self.directory, self.made = directory, made
        self.said, self.pauses = [], []

    def run(self, *answers, words=()):
        """:param answers: the share that it has, and the tracker's answer."""
        left = list(answers)

        def ask(http, method, url, body=None):
            if method == 'GET':
                assert url == f'{URL}/torrent'
                return b'torrent'
            assert (method, url) == ('POST', f'{URL}/peers')
            self.said.append(body)
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            share, error, found = answer
            self.made[0].share = share
            self.made[0].error = error
            return json.dumps({'swarms': [[], [], []], 'share': None,
                               'done': False, 'failed': None}
                              | found).encode()

        self.monkeypatch.setattr(receiving, '_ask', ask)
        self.monkeypatch.setattr(receiving.time, 'sleep',
                                 self.pauses.append)
        args = command._parser().parse_args([
            'receive', f'{URL}/', str(self.directory), '--name', 'a',
            *words])
        return receiving.receive(args, self.out)


@pytest.fixture
def receiver(monkeypatch, out, tmp_path, made):
    return Receiver(monkeypatch, out, tmp_path, made)


PEER = {'name': 'src', 'host': '10.0.0.1', 'port': 7, 'calls': True}
GONE = receiving.NotReached(url='u', limit_s=60, why='x')


def test_a_receiver_asks_until_all_are_done(receiver, tmp_path, out):
    assert receiver.run(
        (0.5, None, {}), (1.0, None, {'swarms': [[PEER], [], []]}),
        (1.0, None, {}), (1.0, None, {'done': True}),
        words=['--cluster', 'r0', '--rate', '8bit/s']) == 0
    (own,) = receiver.made
    assert own.given == (tmp_path, False, '0.0.0.0', 8)
    assert [said['share'] for said in receiver.said] == [0.0, 0.5, 1.0, 1.0]
    assert receiver.said[0] == {
        'name': 'a', 'port': 7, 'share': 0.0,
        'files': trackers.digest(b'torrent'), 'cluster': 'r0',
        'rates_bps': {'a': 5e6}, 'failed': None}
    assert own.followed[0] == ([[], [], []], None)
    assert own.followed[1] == ([[swarm.Peer(**PEER)], [], []], None)
    assert receiver.pauses == [0.25, 0.5, 0.25]
    assert own.is_ended
    text = out.export_text()
    assert 'Received one, two: 1 kB, checked.' in text
    assert '1.0/1.0 kB' in text and '8 Mbit/s in, 16 Mbit/s out' in text


def test_what_goes_wrong_is_told_before_one_gives_up(receiver):
    why = 'x' * 300
    with pytest.raises(members.GivesUp, match=why):
        receiver.run((0.0, why, {}))
    assert receiver.made[0].is_ended
    assert receiver.said[0]['failed'] is None


def test_the_tracker_hears_why(receiver, monkeypatch):
    class Broken(Transfer):
        def __init__(self, *args, **values):
            super().__init__(*args, **values)
            self.error = 'a' + 'x' * 300
            receiver.made.append(self)

    monkeypatch.setattr(swarm, 'Transfer', Broken)
    with pytest.raises(members.GivesUp):
        receiver.run((0.0, 'why', {}))
    assert receiver.said[0]['failed'] == 'x' * 255


def test_a_receiver_gives_up_with_its_sender(receiver):
    with pytest.raises(members.GivesUp, match='The sender gave up: why'):
        receiver.run((0.5, None, {}), (0.5, None, {'failed': 'why'}))
    assert receiver.made[0].is_ended


@pytest.mark.parametrize(('share', 'is_done'), [(1.0, True), (0.99, False)])
def test_a_tracker_may_end_first(receiver, share, is_done):
    if is_done:
        assert receiver.run((share, None, {}), GONE) == 0
    else:
        with pytest.raises(receiving.NotReached):
            receiver.run((share, None, {}), GONE)
    assert receiver.made[0].is_ended


def test_what_both_have_in_common():
    own = types.SimpleNamespace(error=None)
    members.check(own)
    assert members.printable('a\x1b[b\n é') == 'a?[b? é'


@pytest.mark.parametrize('text, limit', [
    (None, 'a JSON file'), ('{', 'a JSON file'), ('[]', 'an object {"VM"'),
    ('{"a": 7}', 'an object {"VM"')])
def test_clusters_that_are_none_are_refused(tmp_path, text, limit):
    path = tmp_path / 'clusters.json'
    if text is not None:
        path.write_text(text)
    with pytest.raises(exception.Invalid) as caught:
        sending._from_file(str(path))
    assert limit in caught.value.kwargs['limit']


def test_clusters_come_from_a_file_or_from_nobody(tmp_path, out):
    path = tmp_path / 'clusters.json'
    path.write_text('{"a": "r0"}')
    assert sending._from_file(str(path)) == {'a': 'r0'}
    assert sending._from_file(None) == {}
    assert sending._group(None, out) is None
    with sending._announced(None, 'a', None, 1.0, out) as nothing:
        assert nothing is None
