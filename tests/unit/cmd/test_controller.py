# SPDX-License-Identifier: Apache-2.0

"""A program of the controller from its port to its stop, in this process."""

import gc
import io
import json
import logging
import signal
import socket
import types
import weakref

import pytest

from tests import patience
from tests.unit import test_app
from virtco import exception
from virtco import systemd
from virtco.api import front
from virtco.api import listeners
from virtco.cmd import controller
from virtco.db import migration
from virtco.db import session as db_session
from virtco.distribute import relay
from virtco.follow import listener


def conf_of(tmp_path, **groups):
    """Return a configuration of loopback alone, in which ports are free."""
    path = tmp_path / 'virtco.conf'
    groups = {'controller': {'state_dir': tmp_path},
              'api': {'port': 0, 'host': '127.0.0.1'},
              'distributor': {'host': '127.0.0.1', 'port': 0}} | groups
    path.write_text(''.join(
        f'[{group}]\n' + ''.join(f'{name} = {value}\n'
                                 for name, value in values.items())
        for group, values in groups.items()))
    return controller.make_conf(['--config-file', str(path)])


def ask(application, path, port=80):
    """Return status and document, as somebody sees them from outside."""
    started = []
    body = b''.join(application(
        {'REQUEST_METHOD': 'GET', 'PATH_INFO': path, 'SERVER_PORT': str(port),
         'SERVER_NAME': 'x', 'SERVER_PROTOCOL': 'HTTP/1.1',
         'QUERY_STRING': '', 'REMOTE_ADDR': '127.0.0.1',
         'wsgi.url_scheme': 'http', 'wsgi.errors': io.StringIO(),
         'wsgi.input': io.BytesIO()},
        lambda status, headers, *_: started.append(status)))
    return int(started[0][:3]), json.loads(body)


class Loader(controller.Loader):
    """Ends no process where it fails."""

    def _end(self):
        """Leave the process alone: its exit code tells."""


@pytest.fixture
def thawed():
    """Let the collector look again at what a loader has frozen."""
    yield
    gc.unfreeze()


class Bus:
    """A listener of Nova that notes what is done to it."""

    def __init__(self):
        self.done = []

    def start(self, _conf, follow):
        self.done.append('start')
        self.follow = follow
        return self

    def close(self):
        self.done.append('close')


@pytest.mark.usefixtures('thawed')
@pytest.mark.parametrize('program, serves, schedules', [
    (controller.CONTROLLER, True, True), (controller.API, True, False),
    (controller.SCHEDULER, False, True)])
def test_a_program_does_its_duties(tmp_path, monkeypatch, program, serves,
                                   schedules):
    bus = Bus()
    monkeypatch.setattr(listener, 'start', bus.start)
    loader = Loader(conf_of(tmp_path), program)
    assert ask(loader.front, '/health')[1]['status'] == 'starting'
    n_frozen = gc.get_freeze_count()
    loader.start()
    try:
        loader.join(60)
        rooms = loader._rooms
        assert gc.get_freeze_count() > n_frozen
        assert (rooms.plans, rooms.leads()) == (serves, schedules)
        assert rooms.starting.what is None
        patience.wait_for(
            lambda: 'test itself' in test_app.names(rooms.turns), 'a test')
        # The others tell how they are, and nothing else.
        assert ask(loader.front, '/health')[1]['status'] != 'starting'
        assert ask(loader.front, '/v1/settings')[0] == (
            200 if serves else 404)
        assert rooms.place.is_alive() is serves
        assert bus.done == ['start'] * schedules
        if schedules:
            assert bus.follow is rooms.follow
        assert rooms.on_deposed == loader._begin_anew
    finally:
        loader.stop()
    assert bus.done == ['start', 'close'] * schedules
    assert not rooms.elector._thread.is_alive()
    assert (loader.exit_code, loader.begins_anew) == (0, False)


@pytest.mark.usefixtures('thawed')
def test_a_distributor_tells_how_it_is(tmp_path):
    conf = conf_of(tmp_path, database={'connection': (
        f'sqlite:///{tmp_path}/db.sqlite')})
    database = db_session.Database.from_conf(conf)
    migration.upgrade(database)
    database.dispose()
    loader = Loader(conf, controller.DISTRIBUTOR)
    loader.start()
    try:
        loader.join(60)
        found = loader._rooms
        assert isinstance(found, relay.Relay)
        assert loader.front._startup.what is None
        assert ask(loader.front, '/health')[1]['leader']['here'] is False
        assert ask(loader.front, '/v1/settings')[0] == 404
    finally:
        loader.stop()
    assert not found._server.is_alive()


def test_a_loader_that_began_nothing_stops(monkeypatch):
    told = []
    monkeypatch.setattr(systemd, 'notify', lambda **words: told.append(words))
    loader = controller.Loader(None)
    loader.stop()
    assert not loader.is_alive() and loader.daemon
    assert told == [{'STOPPING': 1}]


def test_the_collector_spares_what_is_there_for_good(thawed):
    class Node:
        pass

    node = Node()
    node.itself = node
    gone = weakref.ref(node)
    gc.disable()
    try:
        del node
        assert gone() is not None
        controller.spare_libraries()
    finally:
        gc.enable()
    # What nobody uses is not kept for good.
    assert gone() is None
    assert gc.get_freeze_count() > 10_000


def test_the_end_is_a_signal_to_the_process():
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append('ended'))
    try:
        controller.Loader(None)._end()
        patience.wait_for(lambda: noted, 'the signal')
    finally:
        signal.signal(signal.SIGTERM, before)
    assert noted == ['ended']


@pytest.fixture
def serve():
    """Make servers that end with the test."""
    made = []

    def start(conf, program):
        found = controller._server(conf, program, front.Front(
            types.SimpleNamespace(document=lambda: {'findings': 1})))
        made.append(found)
        return found

    yield start
    for one in made:
        one.close()


def ports(server):
    return [port for _, port in getattr(
        server, 'effective_listen', None) or [
            (server.effective_host, server.effective_port)]]


def test_how_a_program_listens(tmp_path, serve, caplog):
    caplog.set_level(logging.INFO)
    conf = conf_of(tmp_path, monitoring={'host': '::1', 'port': 0})
    found = serve(conf, controller.CONTROLLER)
    api, monitoring = ports(found)
    assert caplog.messages == [
        f'Listening on ::1, port {monitoring}; 127.0.0.1, port {api}.']
    accepting = [one for one in found.map.values()
                 if getattr(one, 'accepting', False)]
    assert len(accepting) == 2
    for one in accepting:
        assert one.channel_class.func is listeners.Channel
        # As many connections of an address as are allowed.
        assert one.channel_class.args[0] == 1024
        assert (one.channel_class.args[1]
                is accepting[0].channel_class.args[1])
        adj = one.adj
        # A launch on 1,000 hosts comes in one piece.
        assert adj.recv_bytes == 262_144
        assert adj.channel_request_lookahead == 1
        assert adj.asyncore_use_poll and adj.ident == 'virtco'
        assert adj.max_request_body_size == listeners.MAX_BODY_BYTES
        assert adj.max_request_header_size == listeners.MAX_HEADER_BYTES
        assert adj.connection_limit == 3 * listeners.MAX_CONNECTIONS
        assert adj.channel_timeout == listeners.SILENCE_S
        assert adj.cleanup_interval == 30
    # Findings are told on the port for monitoring alone.
    for port, told in ((api, {'status': 'failing'}),
                       (monitoring, {'findings': 1})):
        assert ask(accepting[0].application, '/health', port)[1] == told


def test_a_program_that_serves_nothing_has_its_port_for_monitoring(
        tmp_path, serve):
    found = serve(conf_of(tmp_path, monitoring={'port': 0}),
                  controller.SCHEDULER)
    assert ask(found.application, '/health')[1] == {'findings': 1}
    assert found.channel_class.func is listeners.Channel


def test_a_port_that_is_taken_is_told(tmp_path, serve):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(exception.ConfigInvalid,
                           match=f'127.0.0.1 port {port}: .*in use'):
            serve(conf_of(tmp_path, api={'host': '127.0.0.1', 'port': port}),
                  controller.API)


@pytest.mark.parametrize('host, auth, program, is_warned', [
    ('10.0.0.1', 'noauth', controller.API, True),
    ('127.0.0.1', 'noauth', controller.API, False),
    ('10.0.0.1', 'keystone', controller.API, False),
    ('10.0.0.1', 'noauth', controller.SCHEDULER, False)])
def test_whoever_reaches_an_open_api_is_an_operator(
        tmp_path, monkeypatch, caplog, capsys, host, auth, program,
        is_warned):
    conf_of(tmp_path, api={'host': host, 'auth_strategy': auth})

    def refuse(*_):
        raise exception.ConfigInvalid(why='no port')

    monkeypatch.setattr(controller, '_server', refuse)
    monkeypatch.setattr(controller.configuration, 'set_up_log',
                        lambda *_: None)
    assert controller.main(['--config-file', str(tmp_path / 'virtco.conf')],
                           program) == 1
    assert ('whoever reaches it' in caplog.text) is is_warned
    assert f'{program.name} cannot start: ' in capsys.readouterr().err


def test_why_it_cannot_start_stands_in_its_log(tmp_path, monkeypatch):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with socket.create_server(('127.0.0.1', 0)) as taken:
            conf_of(tmp_path, DEFAULT={'log_file': tmp_path / 'log'}, api={
                'host': '127.0.0.1', 'port': taken.getsockname()[1]})
            assert controller.main(
                ['--config-file', str(tmp_path / 'virtco.conf')]) == 1
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert 'virtco-controller cannot start: 127.0.0.1 port ' in (
        (tmp_path / 'log').read_text())
