# SPDX-License-Identifier: Apache-2.0

"""What the command takes, and what senders and receivers make of it."""

import io
import json

import pytest
from rich import console
import tenacity
import urllib3

from virtco import exception
from virtco_tenant.cast import command
from virtco_tenant.cast import receiving
from virtco_tenant.cast import sending
from virtco_tenant.cast import torrents
from virtco_tenant.cast import tracker as trackers

KEY = 'k' * 16


def parse(*words):
    return vars(command._parser().parse_args(words))


def test_what_a_sender_is_told():
    found = parse('send', 'model', '--receivers', '3')
    assert {name: found[name] for name in (
        'action', 'run', 'path', 'receivers', 'port', 'key', 'wait',
        'clusters', 'group', 'history', 'plain', 'name', 'cluster',
        'address', 'rate')} == {
            'action': 'send', 'run': sending.send, 'path': 'model',
            'receivers': 3, 'port': 0, 'key': None, 'wait': None,
            'clusters': None, 'group': None, 'history': None, 'plain': False,
            'name': None, 'cluster': None, 'address': '0.0.0.0', 'rate': 0}
    found = parse('send', 'm', '--receivers', '1', '--plain', '--rate',
                  '1Gbit/s', '--key', KEY, '--port', '80', '--wait', '5')
    assert (found['plain'], found['rate'], found['key'], found['port'],
            found['wait']) == (True, 1e9, KEY, 80, 5)


def test_what_a_receiver_is_told():
    found = parse('receive', 'URL', 'DIR', '--cluster', 'r0')
    assert (found['run'], found['url'], found['directory'],
            found['cluster'], found['rate']) == (
                receiving.receive, 'URL', 'DIR', 'r0', 0)


@pytest.mark.parametrize(('option', 'good', 'bad'), [
    ('--receivers', ['1', '4095'], ['0', '4096', '-1', 'x', '1.5', '']),
    ('--port', ['0', '65535'], ['65536', '-1']),
    ('--wait', ['1', '1000000'], ['0', '1000001']),
    ('--key', ['a' * 16, 'Z' * 255, '0_-' * 6],
     ['a' * 15, 'a' * 256, 'a' * 15 + '/', 'a' * 15 + '\n']),
    ('--rate', ['8bit/s', '1Gbit/s'], ['fast'])])
def test_words_have_bounds(option, good, bad, capsys):
    for word in good:
        parse('send', 'm', '--receivers', '1', f'{option}={word}')
    for word in bad:
        with pytest.raises(SystemExit):
            parse('send', 'm', '--receivers', '1', f'{option}={word}')
        assert option in capsys.readouterr().err


@pytest.mark.parametrize('words', [
    (), ('send', 'm'), ('send', '--receivers', '1'), ('receive', 'URL')])
def test_words_that_lack(words):
    with pytest.raises(SystemExit):
        parse(*words)


def test_how_the_command_ends(capsys, tmp_path, monkeypatch):
    words = ['receive', 'http://h:1/k', str(tmp_path / 'none')]
    assert command.main(words) == 1
    assert 'virtco-cast: ' in capsys.readouterr().err

    def end(_args, _out):
        raise KeyboardInterrupt

    monkeypatch.setattr(receiving, 'receive', end)
    assert command.main(words) == 130
    monkeypatch.setattr(receiving, 'receive', lambda args, out: 0)
    assert command.main(words) == 0


@pytest.mark.parametrize('url', [
    'http://h:1', 'https://h:1/k', 'h:1/k', 'http://h:1/k/l', 'http:///k',
    'http://h 1/k'])
def test_addresses_that_no_sender_printed(tmp_path, url):
    args = command._parser().parse_args(['receive', url, str(tmp_path)])
    with pytest.raises(exception.Invalid, match='address of the cast'):
        receiving.receive(args, console.Console())


@pytest.mark.parametrize(('share', 'answer', 'is_over'), [
    (0.99, {'done': False, 'failed': None}, False),
    (1.0, {'done': False, 'failed': None}, False),
    # One that has all goes on giving until all have.
    (1.0, {'done': True, 'failed': None}, True),
    (0.99, {'done': True, 'failed': None}, False),
    (1.0, {'done': False, 'failed': 'why'}, True),
    (0.99, {'done': False, 'failed': 'why'}, None)])
def test_when_a_receiver_ends(share, answer, is_over):
    if is_over is None:
        with pytest.raises(exception.VirtcoException,
                           match='The sender gave up: why'):
            receiving._is_over(share, answer)
    else:
        assert receiving._is_over(share, answer) is is_over


def test_how_often_a_receiver_asks():
    assert receiving._pause_s({'swarms': [[], [], []]}) == 0.25
    assert receiving._pause_s({'swarms': [[], [{}], []]}) == 0.5


class Http:
    """A tracker that answers so, after some failures."""

    def __init__(self, status, n_failures=0):
        self.status = status
        self.data = b'found'
        self.n_failures = n_failures
        self.asked = []

    def request(self, method, url, body):
        self.asked.append((method, url, body))
        if len(self.asked) <= self.n_failures:
            raise urllib3.exceptions.ProtocolError('reset')
        return self


URL = 'http://h:1/key/peers'


def test_what_a_receiver_asks():
    http = Http(200)
    assert receiving._ask(http, 'GET', URL) == b'found'
    assert receiving._ask(http, 'POST', URL, {'a': 1}) == b'found'
    assert http.asked == [('GET', URL, None), ('POST', URL, b'{"a": 1}')]


@pytest.mark.parametrize(('status', 'kind', 'said'), [
    (409, receiving.OtherFiles, 'h:1'), (404, exception.Invalid, 'HTTP 404'),
    (500, exception.Invalid, 'HTTP 500')])
def test_what_a_tracker_refuses(status, kind, said):
    with pytest.raises(kind, match=said):
        receiving._ask(Http(status), 'GET', URL)


def test_a_tracker_that_is_away(monkeypatch):
    monkeypatch.setattr(receiving, 'TRACKER_S', 0)
    with pytest.raises(receiving.NotReached,
                       match='h:1 did not answer for 0 s: ProtocolError'):
        receiving._ask(Http(200, n_failures=1), 'GET', URL)


def test_a_tracker_that_is_away_is_asked_less_and_less_often(monkeypatch):
    waits_s = []
    monkeypatch.setattr(tenacity.nap.time, 'sleep', waits_s.append)
    monkeypatch.setattr(tenacity.wait.random, 'uniform',
                        lambda _least_s, most_s: most_s)
    assert receiving._ask(Http(200, n_failures=7), 'GET', URL) == b'found'
    assert waits_s == [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]


def test_clusters_from_a_file(tmp_path):
    path = tmp_path / 'clusters'
    assert sending._from_file(None) == {}
    path.write_text('{"vm": "rack"}')
    assert sending._from_file(str(path)) == {'vm': 'rack'}
    for text in ('[]', '{"vm": 1}', '{', '{"a": "b", "vm": null}'):
        path.write_text(text)
        with pytest.raises(exception.Invalid, match='--clusters'):
            sending._from_file(str(path))
    with pytest.raises(exception.Invalid, match='--clusters'):
        sending._from_file(str(tmp_path / 'none'))


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_what_casts_remember(tmp_path):
    path = tmp_path / 'history'
    assert sending._from_history(None) == {}
    assert sending._from_history(str(path)) == {}
    tracker = trackers.Tracker('src', 2, Clock())
    out = console.Console(record=True, width=500, file=io.StringIO())
    sending._write_history(str(path), tracker, out)
    assert not path.exists()
    sending._write_history(None, tracker, out)
    tracker.ask('a', ('10.0.0.2', 1))
    for rate_bps in (5e6, 9e6, 1e6):
        tracker.ask('b', ('10.0.0.3', 1), rates_bps={'a': rate_bps})
    sending._write_history(str(path / 'none'), tracker, out)
    assert 'is not written: No such file' in out.export_text()
    sending._write_history(str(path), tracker, out)
    assert json.loads(path.read_text()) == [['a', 'b', 5e6]]
    # Two are too few to tell racks apart.
    assert sending._from_history(str(path)) == {}
    path.write_text(json.dumps([
        [f'{one}{i}', f'{other}{j}', 9e6 if one == other else 1e6]
        for one in 'xy' for other in 'xy' for i in range(4)
        for j in range(4) if (one, i) != (other, j)]))
    found = sending._from_history(str(path))
    assert found['x0'] == found['x3'] != found['y0']
    for wrong in ('{', '[1]', '[["a", "b", "fast"]]'):
        path.write_text(wrong)
        with pytest.raises(exception.Invalid, match='--history'):
            sending._from_history(str(path))


def test_what_is_left_to_send():
    tracker = trackers.Tracker('src', 2, Clock())
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1))
    assert sending._left('src', tracker, 8.0) is None
    tracker.ask('b', ('10.0.0.3', 1), share=0.25)
    tracker.ask('a', ('10.0.0.2', 1), share=1.0)
    src, b = frozenset(('src', '10.0.0.1')), frozenset(('b', '10.0.0.3'))
    left = sending._left('src', tracker, 8.0)
    # One that has all is given nothing more.
    assert {dst for _src, dst in left} == {b}
    assert sum(left.values()) == pytest.approx(6.0)
    assert (src, b) in left


def test_who_asks_no_controller_is_told_nothing():
    assert sending._group(None, console.Console()) is None
    with sending._announced(None, 'src', None, 1.0, console.Console()):
        pass


class Own:
    error = None


def test_files_that_cannot_be_read_are_not_sent(tmp_path, monkeypatch):
    path, read = tmp_path / 'file', torrents.libtorrent.set_piece_hashes
    path.write_bytes(bytes(100_000))

    def shrink(made, where):
        path.write_bytes(bytes(9))
        return read(made, where)

    monkeypatch.setattr(torrents.libtorrent, 'set_piece_hashes', shrink)
    with pytest.raises(exception.Invalid, match='files that can be read'):
        torrents.describe(path)


def test_files_that_change_are_not_sent(tmp_path):
    path = tmp_path / 'file'
    path.write_text('abc')
    stamps = torrents.stamps(path)
    sending._check(Own, stamps)
    path.write_text('abcd')
    with pytest.raises(exception.VirtcoException,
                       match='changed while it was sent'):
        sending._check(Own, stamps)
    own = Own()
    own.error = 'No space left'
    with pytest.raises(exception.VirtcoException, match='No space left'):
        sending._check(own, {})
