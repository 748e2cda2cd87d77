# SPDX-License-Identifier: Apache-2.0

"""What libtorrent is told, by a session that only notes it.

What becomes of it on the network is for functional tests.
"""

import pathlib
import types

import libtorrent
import pytest

from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents

FIRST, BETWEEN, WITHIN = peers.LEVELS
ALL = peers.Share(0, 1, (0.0, 1.0))
FLAGS = libtorrent.torrent_flags
N = 3


class Torrent:
    """A swarm: notes what it is to do."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.priorities = None
        self.told = []
        self.seen = [0] * N
        self.connected = []
        self.state = types.SimpleNamespace(
            is_seeding=False, progress=0.5, download_payload_rate=1000,
            upload_payload_rate=2000, pieces=[True, False, False],
            state=libtorrent.torrent_status.states.checking_files)

    def status(self, *_what):
        return self.state

    def get_peer_info(self):
        return self.connected

    def piece_availability(self):
        return self.seen

    def prioritize_pieces(self, priorities):
        self.priorities = priorities

    def __getattr__(self, name):
        if name not in ('connect_peer', 'read_piece', 'add_piece',
                        'piece_priority'):
            raise AttributeError(name)
        return lambda *args: self.told.append((name, *args))


class Session:
    """Of libtorrent, without its threads and sockets."""

    global_peer_class_id = libtorrent.session.global_peer_class_id
    made = None

    def __init__(self, settings):
        Session.made = self
        self.settings = settings
        self.torrents = []
        self.filters = []
        self.alerts = []
        self.waits_ms = []
        self.is_paused = False

    def add_torrent(self, parameters):
        self.torrents.append(Torrent(parameters))
        return self.torrents[-1]

    def set_peer_class_filter(self, found):
        self.capped = found

    def set_ip_filter(self, found):
        self.filters.append(found)

    def listen_port(self):
        return 7

    def wait_for_alert(self, limit_ms):
        self.waits_ms.append(limit_ms)

    def pop_alerts(self):
        if len(self.alerts) <= 1:
            self.end()
        return self.alerts.pop(0) if self.alerts else []

    def pause(self):
        self.is_paused = True


class Thread:
    """Runs when the test wants it to."""

    def __init__(self, target, daemon):
        self.is_daemon = daemon
        self.steps = []

    def start(self):
        self.steps.append('start')

    def join(self):
        self.steps.append('join')


@pytest.fixture
def make(monkeypatch, tmp_path):
    monkeypatch.setattr(swarm.libtorrent, 'session', Session)
    monkeypatch.setattr(swarm.threading, 'Thread', Thread)
    path = tmp_path / 'file'
    path.write_bytes(bytes(40_000))
    described = torrents.describe(path)

    def call(is_source=False, **values):
        found = swarm.Transfer(described, pathlib.Path('/there'),
                               is_source=is_source, **values)
        found.session = Session.made
        found.session.end = found._ends.set
        return found

    return call


def run(transfer, *alerts):
    """Let the thread see these alerts, and end."""
    transfer._ends.clear()
    transfer.session.alerts = list(alerts)
    transfer._run()


def alert(kind, **values):
    """An alert of libtorrent's that none can make but libtorrent."""
    return type(kind.__name__, (kind,), {
        '__init__': lambda self: None, '__new__': object.__new__,
        **values})


def ready(transfer):
    """What was here before is checked."""
    (own,) = transfer.session.torrents
    own.state.state = libtorrent.torrent_status.states.downloading
    run(transfer)
    return transfer._swarms


def peer(name, host='10.0.0.1', port=9, calls=True):
    return swarm.Peer(name, host, port, calls)


def test_a_source_has_all_in_each_swarm(make):
    transfer = make(True, rate_bps=9, address='10.0.0.7')
    session = transfer.session
    assert len(session.torrents) == 3 and transfer.ready
    for one in session.torrents:
        flags = one.parameters.flags
        assert flags & FLAGS.seed_mode
        assert not flags & (FLAGS.auto_managed | FLAGS.paused)
        assert one.parameters.save_path == '/there'
    assert len({str(one.parameters.ti.info_hash())
                for one in session.torrents}) == 3
    assert session.settings['listen_interfaces'] == '10.0.0.7:0'
    # Bytes per second, rounded up: 0 would be no cap.
    assert session.settings['upload_rate_limit'] == 2
    assert transfer.port == 7
    assert (transfer.size_bytes, transfer.names) == (40_000, ['file'])
    assert transfer._thread.steps == ['start']
    assert transfer._thread.is_daemon
    # The cap holds for any address.
    assert session.capped.access('192.168.0.1') == 1 << (
        Session.global_peer_class_id)
    transfer.end()
    assert transfer._thread.steps == ['start', 'join'] and session.is_paused
    assert transfer._ends.is_set()


def test_settings_are_cornets_unless_others_are_given(make):
    found = make().session.settings
    # No search for strangers, no protocol but TCP, no tit-for-tat.
    assert {name for name, value in found.items() if value is True} == {
        'allow_multiple_connections_per_ip'}
    assert {'enable_dht', 'enable_lsd', 'enable_upnp', 'enable_natpmp',
            'enable_outgoing_utp', 'enable_incoming_utp',
            'close_redundant_connections', 'rate_limit_ip_overhead',
            'send_redundant_have'} <= {
        name for name, value in found.items() if value is False}
    assert {name: found[name] for name in (
        'choking_algorithm', 'unchoke_slots_limit', 'peer_turnover',
        'upload_rate_limit', 'request_queue_time', 'suggest_mode',
        'min_reconnect_time', 'send_buffer_watermark')} == {
            'choking_algorithm': 0, 'unchoke_slots_limit': -1,
            'peer_turnover': 0, 'upload_rate_limit': 0,
            'request_queue_time': 1, 'suggest_mode': 0,
            'min_reconnect_time': 1, 'send_buffer_watermark': 2 ** 22}
    # It hears of blocks that came, and of files that cannot be read.
    kinds = libtorrent.alert.category_t
    assert found['alert_mask'] == (kinds.piece_progress_notification
                                   + kinds.storage_notification)
    assert make(others={'peer_turnover': 4}).session.settings[
        'peer_turnover'] == 4


def test_a_receiver_begins_when_its_files_are_checked(make):
    transfer = make()
    assert len(transfer.session.torrents) == 1 and not transfer.ready
    # Before the tracker names anybody, nobody may connect.
    assert transfer.session.filters[0].access('10.0.0.1') == 1
    assert not transfer._all.parameters.flags & FLAGS.seed_mode
    transfer.follow([[peer('src')]] * 3, ALL)
    run(transfer)
    assert not transfer.ready
    first, between, within = ready(transfer)
    assert within is transfer._all
    for one in (first, between):
        assert one.parameters.have_pieces == [True, False, False]
        assert one.parameters.piece_priorities == [0, 0, 0]
        assert one.parameters.flags & FLAGS.sequential_download
        assert not one.parameters.flags & FLAGS.seed_mode
    # Only then it fetches, what it does not have.
    transfer.follow([[], [], []], ALL)
    assert first.priorities == between.priorities == [0, 4, 4]
    first.priorities = None
    transfer.follow([[], [], []], ALL)
    assert first.priorities is None


def test_a_receiver_that_has_nothing_begins_at_once(make):
    transfer = make()
    transfer._all.state.pieces = []
    first, _between, _within = ready(transfer)
    assert first.parameters.have_pieces == [False] * N


@pytest.mark.parametrize(('state', 'share'), [
    ((True, 1.0), 1.0), ((True, 0.2), 1.0), ((False, 0.25), 0.25),
    # Not all is there before all is checked.
    ((False, 1.0), 0.999999)])
def test_what_it_has(make, state, share):
    transfer = make()
    transfer._all.state.is_seeding, transfer._all.state.progress = state
    assert transfer.share == share


def test_how_fast_it_is(make):
    transfer = make(True)
    assert (transfer.receive_bps, transfer.send_bps) == (24_000, 48_000)


def test_it_talks_to_whom_the_tracker_names(make):
    transfer = make(True)
    first, between, within = transfer._swarms
    within.connected = [types.SimpleNamespace(ip=('10.0.0.3', 9))]
    links = [[peer('a', '10.0.0.1')], [peer('b', '10.0.0.2', calls=False)],
             [peer('c', '10.0.0.3'), peer('d', '10.0.0.3', 8)]]
    transfer.follow(links, None)
    assert first.told == [('connect_peer', ('10.0.0.1', 9))]
    assert between.told == []
    assert within.told == [('connect_peer', ('10.0.0.3', 8))]
    # Those may connect, and nobody else.
    block = transfer.session.filters[-1]
    assert [block.access(f'10.0.0.{number}') for number in range(5)] == [
        1, 0, 0, 0, 1]
    n_filters = len(transfer.session.filters)
    transfer.follow(links, None)
    assert len(transfer.session.filters) == n_filters
    # Who is not there yet is called again.
    assert len(first.told) == 2


def test_at_which_rates_bytes_come(make):
    transfer = make(True)

    def comes(ip, rate):
        return types.SimpleNamespace(ip=ip, payload_down_speed=rate)

    transfer.follow([[peer('a', '10.0.0.1')], [peer('a', '10.0.0.1')],
                     [peer('b', '10.0.0.2'), peer('c', '10.0.0.2', 8)]],
                    None)
    first, between, within = transfer._swarms
    # From another port, as one that connected shows.
    first.connected = [comes(('10.0.0.1', 50_000), 100)]
    between.connected = [comes(('10.0.0.1', 9), 10)]
    # Two share an address: one of another port may be either.
    within.connected = [comes(('10.0.0.2', 8), 5), comes(('10.0.0.2', 7), 3),
                        comes(('10.0.0.2', 9), 0), comes(('10.9.9.9', 9), 4)]
    assert transfer.rates_bps() == {'a': 880.0, 'c': 40.0}


def finished(one, block):
    return alert(libtorrent.piece_finished_alert, handle=one,
                 piece_index=block)()


def read(block, data=b'data'):
    return alert(libtorrent.read_piece_alert, piece=block, buffer=data)()


def test_what_comes_by_one_swarm_is_given_to_the_others(make):
    transfer = make()
    first, between, within = ready(transfer)
    transfer.follow([[], [], []], ALL)
    run(transfer, [finished(first, 1)])
    # It is read once where it is, and not fetched elsewhere.
    assert first.told == [('read_piece', 1)]
    assert between.told == [('piece_priority', 1, 0)]
    assert within.told == []
    run(transfer, [read(1)])
    assert between.told[1:] == within.told == [('add_piece', 1, b'data', 0)]
    # Blocks that nobody lacks are not read.
    for one in (between, within):
        run(transfer, [finished(one, 1)])
    first.told.clear()
    between.told.clear()
    run(transfer, [finished(within, 1)])
    assert [name for one in (first, between, within)
            for name, *_ in one.told].count('read_piece') == 0


def test_a_block_that_could_not_be_read_goes_nowhere(make):
    transfer = make()
    _first, between, within = ready(transfer)
    transfer.follow([[], [], []], ALL)
    run(transfer, [read(1, b'')])
    assert between.told == within.told == []


def test_so_many_are_read_at_once(make, monkeypatch):
    monkeypatch.setattr(swarm, '_MAX_READS', 2)
    transfer = make()
    transfer._all.state.pieces = [False] * N
    first, _between, _within = ready(transfer)
    transfer.follow([[], [], []], ALL)
    run(transfer, [finished(first, block) for block in range(N)])
    assert first.told == [('read_piece', 0), ('read_piece', 1)]
    # The next one when one of them is here.
    transfer._blocks.to_pass.clear()
    first.told.clear()
    transfer = make()
    transfer._all.state.pieces = [False] * N
    first, _between, _within = ready(transfer)
    transfer.follow([[], [], []], ALL)
    run(transfer, [finished(first, block) for block in range(N)], [read(0)])
    assert [told for told in first.told if told[0] == 'read_piece'] == [
        ('read_piece', block) for block in range(N)]


def test_one_is_read_for_each_that_came(make, monkeypatch):
    monkeypatch.setattr(swarm, '_MAX_READS', 1)
    transfer = make()
    transfer._all.state.pieces = []
    first, _between, _within = ready(transfer)
    run(transfer, [finished(first, block) for block in range(N)], [read(0)])
    assert first.told == [('read_piece', 0), ('read_piece', 1)]


def test_a_block_that_nobody_lacks_keeps_no_other_waiting(make, monkeypatch):
    monkeypatch.setattr(swarm, '_MAX_READS', 1)
    transfer = make()
    transfer._all.state.pieces = []
    swarms = ready(transfer)
    transfer.session.waits_ms.clear()
    run(transfer, [*(finished(one, 0) for one in swarms),
                   finished(swarms[0], 1)])
    assert swarms[0].told == [('read_piece', 1)]
    # Between its looks it sleeps.
    assert transfer.session.waits_ms == [100]


@pytest.mark.parametrize(('seen', 'taken'), [
    ([0, 1, 0], [{2}]), ([0, 0, 3], [{1}]), ([0, 1, 1], [set()]),
    # Nobody is there.
    ([], [{1}, {2}])])
def test_who_helps_takes_what_no_neighbour_has(make, seen, taken):
    transfer = make()
    transfer._all.state.pieces = []
    first, between, within = ready(transfer)
    of_two = peers.Share(0, 2, (0.0, 1.0))
    transfer.follow([[], [], []], of_two)
    assert first.priorities == [4, 0, 0]
    run(transfer, [finished(within, 0)])
    first.priorities = [0, 0, 0]
    within.seen, between.seen = seen, []
    transfer.follow([[], [], []], of_two)
    assert {block for block, one in enumerate(first.priorities)
            if one} in taken


def test_what_the_system_said_of_files(make):
    transfer = make()
    assert transfer.error is None
    run(transfer, [alert(
        libtorrent.file_error_alert, filename=lambda self: 'file',
        error=types.SimpleNamespace(message=lambda: 'no space'))()])
    assert transfer.error == 'file: no space'
