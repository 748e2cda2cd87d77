# SPDX-License-Identifier: Apache-2.0

"""``virtco top`` looks again, and outlasts an outage."""

import io
import threading
import types

from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import test_overview as looks
from virtco import exception
from virtco.osc import top
from virtco.wire import coflow_bodies as wire
from virtco.wire import host as host_wire


class Client:
    """Answers, then an outage, then answers again."""

    url = 'http://c'

    def __init__(self, outages=()):
        self.looks = 0
        self.outages = outages

    def call(self, operation, name=None, **query):
        if operation != wire.LIST:
            raise exception.Forbidden(what='hosts')
        self.looks += 1
        if self.looks in self.outages:
            raise exception.ControllerUnavailable(url=self.url, why='refused')
        return wire.Coflows([looks.coflow(f'look-{self.looks}')])


def run(client, *argv):
    app = types.SimpleNamespace(
        stdout=io.StringIO(), client_manager=types.SimpleNamespace(
            coflow=client))
    command = top.Top(app, None)
    command.take_action(command.get_parser('top').parse_args(list(argv)))
    return app.stdout.getvalue()


def test_once():
    client = Client()
    screen = run(client, '--once')
    assert 'look-1' in screen and 'operators only' in screen
    assert client.looks == 1
    client.url = 'http://[fd00::5]:8791'
    assert f'1 coflows at {client.url}, by order' in run(client, '--once')


def test_a_picture_of_it(tmp_path):
    client, path = Client(), tmp_path / 'top.svg'
    assert 'look-1' in run(client, '--svg', str(path))
    assert client.looks == 1
    picture = path.read_text()
    assert picture.startswith('<svg') and 'look-1' in picture
    assert 'url("https' not in picture
    with pytest.raises(osc_exceptions.CommandError,
                       match='--svg /none/top.svg: No such file'):
        run(client, '--svg', '/none/top.svg')


def test_again_until_it_is_stopped(monkeypatch):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt
    monkeypatch.setattr(top.time, 'sleep', sleep)
    client = Client(outages=[2])
    run(client, '--interval', '3')
    assert client.looks == 4 and slept == [3.0] * 4


def test_the_first_look_tells_of_an_outage_by_its_error():
    with pytest.raises(exception.ControllerUnavailable):
        run(Client(outages=[1]))


@pytest.mark.parametrize('argv', [
    ('--interval', '0.49'), ('--interval', 'nan'), ('--rows', '0'),
    ('--rows', '0', '--interval', '0.5')])
def test_options_that_are_refused(argv):
    with pytest.raises(exception.Invalid, match=argv[0]):
        run(Client(), *argv)


class _Hosts(Client):
    """A cloud of so many hosts, each of which can be asked."""

    def __init__(self, n):
        super().__init__()
        self.asked = []
        self._n = n

    def call(self, operation, name=None, **query):
        if operation == host_wire.LIST:
            return host_wire.Hosts([looks.host(f'h{i}')
                                    for i in range(self._n)])
        if operation != host_wire.SHOW:
            return super().call(operation, name)
        self.asked.append(name)
        return looks.host(name)


@pytest.mark.parametrize('more', [0, 1])
def test_classes_of_a_large_cloud_are_not_asked(more):
    client = _Hosts(top.MOST_HOSTS + more)
    seen = top.ask(client, None)
    assert len(seen.hosts) == top.MOST_HOSTS + more
    assert len(client.asked) == (0 if more else top.MOST_HOSTS)


def test_a_project_a_state_and_a_number_of_rows():
    asked = []

    class Asked(Client):
        def call(self, operation, name=None, **query):
            if operation != wire.LIST:
                return super().call(operation, name)
            asked.append((name, query['retired']))
            return wire.Coflows([looks.coflow(f'c{i}', state='registered')
                                 for i in range(30)])

    screen = run(Asked(), '--once', '--project', 'p', '--state', 'registered',
                 '--sort', 'name', '--filter', 'c')
    assert asked == [('p', False)] and 'by name' in screen
    assert 'At most 20 rows' in screen
    assert '0 coflows' in run(Asked(), '--once', '--filter', 'x')
    assert 'At most 1 rows' in run(Asked(), '--once', '--state',
                                   'registered', '--rows', '1')
    run(Asked(), '--once', '--state', 'retired')
    assert asked[-1] == (None, True)


def test_the_shortest_wait_and_the_usual_one(monkeypatch):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        raise KeyboardInterrupt
    monkeypatch.setattr(top.time, 'sleep', sleep)
    run(Client())
    run(Client(), '--interval', '0.5')
    assert slept == [2.0, 0.5]


def test_a_terminal_gets_its_screen_back(monkeypatch):
    """Each look is drawn, and nothing between two of them."""
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    slept = []

    def sleep(seconds):
        assert not any('Refresh' in type(one).__name__
                       for one in threading.enumerate())
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setattr(top.time, 'sleep', sleep)
    monkeypatch.setattr(io, 'StringIO', Terminal)
    shown = run(Client())
    begin, end = '\x1b[?1049h', '\x1b[?1049l'
    places = [shown.index(part) for part in (
        begin, 'look-1', 'look-2', 'look-3', end)]
    assert places == sorted(places)
    # Numbers have no colors of their own.
    assert '1 coflows at http://c, by order' in shown
