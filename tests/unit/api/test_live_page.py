# SPDX-License-Identifier: Apache-2.0

"""The live page: who is served its files and events, and how they are told."""

import re
import threading
import types

import falcon
from falcon import testing
import pytest
from waitress import channel as channels

from tests import patience
from tests.unit.api import service
from virtco import exception
from virtco.api import errors
from virtco.api import live_page
from virtco.api import viewers


class Viewer:
    def __init__(self, is_ready=True, error=None):
        self.ready, self.error, self.seen = is_ready, error, []
        self.is_closed = False

    def is_ready(self):
        return self.ready

    def write(self, data):
        if self.error is not None:
            raise self.error
        self.seen.append(data)

    def close(self):
        self.is_closed = True


@pytest.fixture
def watchers():
    return viewers.Viewers()


def serve(watchers, **options):
    made = service.Service()
    made.conf.set_override('ui', True, 'api')
    for name, value in options.items():
        made.conf.set_override(name, value, 'api')
    app = falcon.App()
    errors.add_handlers(app)
    live_page.add(app, made.conf, made.rooms, watchers)
    return made, testing.TestClient(app)


def test_the_page_is_off_unless_asked_for(watchers):
    made, _client = serve(watchers)
    made.conf.clear_override('ui', 'api')
    app = falcon.App()
    live_page.add(app, made.conf, made.rooms, watchers)
    assert testing.TestClient(app).simulate_get('/ui').status_code == 404
    assert live_page.open_paths(made.conf) == ()


def test_each_file_forbids_what_it_does_not_hold(watchers):
    made, client = serve(watchers)
    moved = client.simulate_get('/ui')
    assert (moved.status_code, moved.headers['location']) == (308, 'ui/')
    assert client.simulate_get('/ui/').text == client.simulate_get(
        '/ui/index.html').text
    assert client.simulate_get('/ui/..%2Flive_page.py').status_code == 404
    assert client.simulate_get('/ui/none.js').status_code == 404
    for name in live_page.files():
        found = client.simulate_get(f'/ui/{name}')
        assert found.content == live_page.files()[name]
        assert "script-src 'self'" in found.headers[
            'content-security-policy']
        assert f'/ui/{name}' in live_page.open_paths(made.conf)
    assert client.simulate_get('/ui/main.js').headers[
        'content-type'] == 'text/javascript; charset=utf-8'
    assert '/ui/events' not in live_page.open_paths(made.conf)


def test_the_page_loads_nothing_from_elsewhere():
    for name, data in live_page.files().items():
        text = data.decode()
        assert len(text.splitlines()) <= 300, name
        if name.endswith('.html'):
            assert not re.search(r'<script>|<style|\son\w+=|style=', text)
        if name.endswith(('.html', '.css')):
            assert 'http' not in text, name
        if name.endswith('.js') and 'min' not in name:
            assert not re.search(r'innerHTML|insertAdjacent|eval\(|http',
                                 text), name


@pytest.mark.parametrize('host, is_served', [
    ('127.0.0.1', True), ('::1', True), ('10.0.0.1', False)])
def test_without_keystone_only_loopback_is_served(watchers, host, is_served):
    options = {'host': host, 'auth_strategy': 'noauth'}
    if is_served:
        assert serve(watchers, **options)[1].simulate_get('/ui/').text
        return
    with pytest.raises(exception.ConfigInvalid, match='loopback'):
        serve(watchers, **options)
    assert serve(watchers, host=host)[1].simulate_get('/ui/').text


def test_events_ask_who_watches(watchers):
    _made, client = serve(watchers)
    assert client.simulate_get('/ui/events').status_code == 403
    found = client.simulate_get('/ui/events', headers={
        'X-Roles': 'reader', 'X-Project-Id': 'p',
        'X-Identity-Status': 'Confirmed'})
    assert found.headers['content-type'] == 'text/event-stream'
    # A proxy that buffers would tell of a change when the next ones come.
    assert found.headers['x-accel-buffering'] == 'no'
    assert found.headers.items() >= {
        name.lower(): value for name, value in live_page.HEADERS.items()
    }.items()
    assert found.content == viewers.CHANGED


def test_reports_and_changes_are_told(watchers):
    made, _client = serve(watchers)
    for tell in (made.rooms.state.on_report[-1],
                 made.rooms.state.on_change[-1]):
        watchers._is_changed = False
        tell('h0', None)
        assert watchers._is_changed


@pytest.fixture
def told(watchers, monkeypatch):
    """Viewers without a thread."""
    monkeypatch.setattr(watchers, '_run', lambda: None)
    return watchers


def test_viewers_hear_of_changes_once(told):
    viewer = Viewer()
    assert told.add('p', viewer)
    told.turn()
    assert viewer.seen == []
    told.changed()
    told.turn()
    told.turn()
    assert viewer.seen == [viewers.CHANGED]


def test_silent_viewers_hear_that_the_server_is_there(told):
    viewer = Viewer()
    told.add('p', viewer)
    for _ in range(viewers.SILENT_TURNS - 1):
        told.turn()
    assert viewer.seen == []
    told.turn()
    assert viewer.seen == [viewers.ALIVE]
    told.changed()
    for _ in range(viewers.SILENT_TURNS):
        told.turn()
    assert viewer.seen == [viewers.ALIVE, viewers.CHANGED]


def test_a_viewer_that_does_not_read_misses_events(told):
    slow, gone, broken, last = (
        Viewer(is_ready=False), Viewer(error=ConnectionResetError()),
        Viewer(error=ValueError()), Viewer())
    for viewer in (slow, gone, broken, last):
        told.add('p', viewer)
    told.changed()
    told.turn()
    assert (slow.seen, last.seen) == ([], [viewers.CHANGED])
    assert list(told._viewers) == [slow, last]
    assert [one.is_closed for one in (slow, gone, broken, last)] == [
        False, False, True, False]


def test_too_many_viewers_are_not_kept(told, monkeypatch):
    monkeypatch.setattr(viewers, 'MOST_VIEWERS', 3)
    monkeypatch.setattr(viewers, 'MOST_OF_PROJECT', 2)
    assert [told.add(project, Viewer()) for project in 'ppp'] == [
        True, True, False]
    assert [told.add(project, Viewer()) for project in 'qq'] == [True, False]
    assert list(told._viewers.values()) == list('ppq')


def test_who_comes_as_the_last_viewer_goes_shares_its_thread():
    turns, came = threading.Semaphore(0), threading.Event()
    every = viewers.Viewers(lambda _: turns.acquire(timeout=60))

    def turn():
        every._viewers.clear()
        if not came.is_set():
            every.add('p', 'second')
            came.set()

    every.turn = turn
    n_before = threading.active_count()
    every.add('p', 'first')
    turns.release()
    assert came.wait(60)
    assert threading.active_count() == n_before + 1
    turns.release()
    assert patience.wait_for(
        lambda: threading.active_count() == n_before, 'its end') is not None


def test_the_server_is_woken_to_close_a_connection():
    """It would wait until another connection has something to read."""
    woken = []
    channel = types.SimpleNamespace(
        close_when_flushed=False, total_outbufs_len=0,
        server=types.SimpleNamespace(pull_trigger=lambda: woken.append(
            channel.close_when_flushed)))
    task = viewers.Task(channel, types.SimpleNamespace(
        error=None, version='1.1', headers={}))
    assert task.is_ready()
    task.close()
    assert woken == [True]
    channel.total_outbufs_len = 1
    assert not task.is_ready()


@pytest.mark.parametrize('keep, stays', [
    (None, False), (False, False), (True, True)])
def test_an_answer_stays_open_where_the_application_keeps_it(keep, stays):
    sent, asked = [], []
    task = viewers.Task(types.SimpleNamespace(write_soon=sent.append),
                        types.SimpleNamespace(error=None, version='1.1',
                                              headers={}))
    task.environ = {} if keep is None else {
        viewers.KEEP: lambda viewer: asked.append(viewer) or keep}
    task.chunked_response = task.close_on_finish = task.wrote_header = True
    task.finish()
    assert asked == [task] * (keep is not None)
    assert task.close_on_finish is not stays
    # The end of an answer in pieces.
    assert sent == [b'0\r\n\r\n'] * (not stays)


def test_a_viewer_that_is_gone_is_a_broken_connection():
    sent = []

    def write_soon(data):
        if sent:
            raise channels.ClientDisconnected
        sent.append(data)

    task = viewers.Task(types.SimpleNamespace(write_soon=write_soon),
                        types.SimpleNamespace(error=None, version='1.1',
                                              headers={}))
    task.complete = task.wrote_header = True
    task.write(b'one')
    assert sent == [b'one']
    with pytest.raises(ConnectionResetError):
        task.write(b'two')


def test_an_answer_without_a_header_is_not_kept():
    task = viewers.Task(None, types.SimpleNamespace(
        error=None, version='1.1', headers={}))
    task.environ = {viewers.KEEP: lambda viewer: True}
    with pytest.raises(RuntimeError, match='start_response'):
        task.finish()
    assert not task.wrote_header


def test_one_thread_serves_all_viewers_and_ends_with_the_last(monkeypatch):
    monkeypatch.setattr(viewers, 'TURN_S', 0.01)
    told = viewers.Viewers()

    def n_threads():
        return sum(one.name == 'viewers' for one in threading.enumerate())

    n_before = n_threads()
    first, second, third = Viewer(), Viewer(), Viewer(error=OSError())
    for viewer in first, second:
        told.add('p', viewer)
        assert n_threads() == n_before + 1
    told._viewers.clear()
    assert patience.wait_for(lambda: n_threads() == n_before, 'its end')
    told.add('p', third)
    assert n_threads() == n_before + 1
    told.changed()
    assert patience.wait_for(lambda: n_threads() == n_before, 'its end')
    assert not told._viewers
