# SPDX-License-Identifier: Apache-2.0

"""``virtco measure calibrate`` leaves what the controller can read."""

import io
import stat
import types

from msgspec import structs
from osc_lib import exceptions as osc_exceptions
from oslo_config import cfg
import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.conf import probe_options as probe_conf
from virtco.measure import calibration
from virtco.osc import measure_commands as measure
from virtco.wire import host as host_wire
from virtco.wire import probe as wire
from virtco.wire import reports
from virtco.wire import topology as topology_wire

TCP_BPS = 95e6


class Client:
    """A cloud of four hosts whose short trains say twice the rate.

    :ivar asked: kinds of the measurements that were ordered.
    """

    def __init__(self, enough_packets=200, fails=False):
        self.asked = []
        self._enough = enough_packets
        self._fails = fails

    n_hosts = 4

    def call(self, operation, probe_id=None, **request):
        if operation == host_wire.LIST:
            return host_wire.Hosts([
                controller.made(host_wire.Host, host=f'h{i}')
                for i in range(self.n_hosts)])
        if operation == wire.ORDER:
            self.asked.append(request)
            return wire.Ordered(str(len(self.asked) - 1))
        request = self.asked[int(probe_id)]
        result = {'rate_bps': TCP_BPS}
        if request['kind'] == 'train':
            is_short = request['packets'] < self._enough
            frames_bps = TCP_BPS / calibration.tcp_bps(1.0)
            result = {} if self._fails else {
                'rate_bps': frames_bps * (2 if is_short else 1)}
        return controller.made(wire.Results, done=True, results=[
            {'src': src, 'dst': dst, **result}
            for src, dst in request['pairs']])


def _calibrate(client, *argv):
    app = types.SimpleNamespace(
        stdout=io.StringIO(), client_manager=types.SimpleNamespace(
            coflow=client))
    command = measure.Calibrate(app, None)
    args = command.get_parser('calibrate').parse_args(['-f', 'json', *argv])
    return command.entries(args)


def _read(path):
    conf = cfg.ConfigOpts()
    conf.register_opts(probe_conf.OPTS, group='probe')
    conf(['--config-dir', str(path.parent)], project='virtco')
    return conf.probe


def test_the_controller_reads_what_was_found(tmp_path):
    path = tmp_path / 'trains.conf'
    entries = _calibrate(Client(500), '--write', str(path))
    chosen, = (one for one in entries if one.chosen)
    read = _read(path)
    assert (read.bursts, read.packets) == (chosen.bursts, chosen.packets)
    assert read.packets == 500
    assert [one.name for one in tmp_path.iterdir()] == ['trains.conf']
    # The controller has another user.
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    text = path.read_text()
    assert 'h0 -> h1, h2 -> h3' in text and 'nearest' not in text


def test_it_says_where_nothing_is_near_enough(tmp_path):
    path = tmp_path / 'trains.conf'
    _calibrate(Client(10 ** 6), '--write', str(path))
    assert 'No setting came within 4.0%' in path.read_text()
    assert _read(path).bursts == 5


def test_without_a_place_nothing_is_measured(tmp_path):
    client = Client()
    for path in (tmp_path, tmp_path / 'no' / 'trains.conf'):
        with pytest.raises(osc_exceptions.CommandError) as error:
            _calibrate(client, '--write', str(path))
        assert str(path) in str(error.value)
        assert '\n' not in str(error.value)
    assert not client.asked


def test_without_a_result_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / 'trains.conf'
    path.write_text('[probe]\nbursts = 7\n')
    with pytest.raises(osc_exceptions.CommandError):
        _calibrate(Client(fails=True), '--write', str(path))
    assert _read(path).bursts == 7


def test_without_the_option_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _calibrate(Client())
    assert not list(tmp_path.iterdir())


PLANES = [{'name': 'front-end', 'levels': [{'name': 'rack'}, {'name': 'pod'}],
           'nodes': [{'name': f'p{p}', 'nodes': [
               {'name': f'p{p}r{r}', 'hosts': [f'p{p}r{r}h{h}'
                                               for h in range(4)]}
               for r in range(2)]} for p in range(3)]}]


class Tree:
    """Paths of 100 Mbit/s, divided among those that leave a subtree.

    :param narrow: beginning of the names of its hosts.
    """

    def __init__(self, narrow, planes=PLANES):
        self._narrow, self._planes = narrow, planes
        self.asked = []

    def call(self, operation, probe_id=None, **request):
        if operation == topology_wire.SHOW:
            return controller.made(topology_wire.Topology,
                                   planes=self._planes)
        if operation == wire.ORDER:
            self.asked.append(request)
            return wire.Ordered(str(len(self.asked) - 1))
        pairs = self.asked[int(probe_id)]['pairs']
        leaving = [pair for pair in pairs
                   if pair[0].startswith(self._narrow)
                   and not pair[1].startswith(self._narrow)]
        return controller.made(wire.Results, done=True, results=[
            {'src': pair[0], 'dst': pair[1],
             'rate_bps': 1e8 / max(1, len(leaving) * (pair in leaving))}
            for pair in pairs])


def _interference(client, *hosts):
    app = types.SimpleNamespace(
        stderr=io.StringIO(), client_manager=types.SimpleNamespace(
            coflow=client))
    command = measure.Paths(app, None)
    args = command.get_parser('paths').parse_args(hosts)
    return command.entries(args), app.stderr.getvalue().strip()


#: Two leave a rack, a third their pod from the other rack; the fourth enters
#: the pod of the first two.
PATHS = ('p0r0h0', 'p1r0h0', 'p0r0h1', 'p1r1h0', 'p0r1h0', 'p2r0h1',
         'p2r1h2', 'p1r1h1')


@pytest.mark.parametrize('narrow, n_shared, said', [
    ('p0r0', 2, 'out of rack p0r0: explains 6 of 6 pairs'),
    ('p0', 6, 'out of pod p0: explains 6 of 6 pairs'),
    ('none', 0, 'No two paths share a bottleneck.')])
def test_the_level_of_the_bottleneck_is_told(narrow, n_shared, said):
    rows, told = _interference(Tree(narrow), *PATHS)
    assert len(rows) == 12
    assert sum(row.shares_bottleneck for row in rows) == n_shared
    assert said in told
    assert [(row.src, row.dst, row.beside) for row in rows[:4]] == [
        ('p0r0h0', 'p1r0h0', 'p0r0h1 -> p1r1h0'),
        ('p0r0h1', 'p1r1h0', 'p0r0h0 -> p1r0h0'),
        ('p0r0h0', 'p1r0h0', 'p0r1h0 -> p2r0h1'),
        ('p0r1h0', 'p2r0h1', 'p0r0h0 -> p1r0h0')]
    for row in rows:
        assert row.alone_bps == 1e8
        assert row.shares_bottleneck == (row.beside_bps == 5e7)


def test_a_bottleneck_is_shared_even_if_one_path_alone_suffers():
    class Unfair(Tree):
        def call(self, operation, *args, **request):
            found = super().call(operation, *args, **request)
            if operation != wire.SHOW:
                return found
            first, *others = found.results
            return structs.replace(found, results=[
                structs.replace(first, rate_bps=1e7), *others,
            ]) if others else found

    rows, told = _interference(Unfair('none'), 'p0r0h0', 'p1r0h0', 'p0r0h1',
                               'p1r1h0')
    assert [row.shares_bottleneck for row in rows] == [True, False]
    assert 'The bottleneck may be' in told


def test_two_paths_leave_several_levels_possible():
    _rows, told = _interference(Tree('p0r0'), *PATHS[:4])
    assert told == ('The bottleneck may be out of rack p0r0 or out of pod p0 '
                    'or into pod p1: explains 1 of 1 pairs of paths.')


@pytest.mark.parametrize('planes', [[], PLANES])
def test_what_the_topology_does_not_explain(planes):
    """Two paths whose hosts nothing joins."""
    _rows, told = _interference(Tree('p', planes), 'pa', 'a', 'pb', 'b')
    assert told.startswith('No level of the topology explains')


@pytest.mark.parametrize('hosts', [
    ['a'], ['a', 'b', 'c'], ['a', 'b', 'c', 'a'],
    [f'h{i}' for i in range(18)]])
def test_paths_are_whole_and_disjoint(hosts):
    with pytest.raises(exception.Invalid, match='2 to 16 different'):
        _interference(Tree('none'), *hosts)


def _one(answers, command, *argv):
    return controller.rows(command, controller.Controller(**answers), *argv)


def test_probes_under_way():
    pairs = [{'src': 'a', 'dst': 'b'}, {'src': 'c', 'dst': 'd'}]
    found, _ = _one({'GET /v1/probes': {'n_held': 5, 'under_way': pairs}},
                    measure.ShowProbes)
    assert (found['n_held'], found['under_way']) == (5, pairs)


def _cross(result, *argv, **told):
    one = controller.Controller(**{
        'GET /v1/hosts/a': {'egress_bps': 2e8, 'ingress_bps': 1e6},
        'GET /v1/hosts/b': {'egress_bps': 1e6, 'ingress_bps': 1e8},
        'POST /v1/probes': {'id': '7'},
        'GET /v1/probes/7': [{'done': False}, {'done': True, 'results': [
            {'src': 'a', 'dst': 'b'} | result]} | told]})
    (found,), _ = controller.rows(measure.Paths, one, 'a', 'b', *argv)
    return found, one.asked[2][2]


def test_other_connections_on_a_path(monkeypatch):
    waits = []
    monkeypatch.setattr(measure.time, 'sleep', waits.append)
    path_bps = calibration.tcp_bps(1e8)
    window = path_bps / 8 * reports.WINDOW_S
    found, asked = _cross({'rate_bps': path_bps / 2, 'windows_bytes': [
        window / 2, 0, window / 2, window / 4, 1.0]})
    assert asked == {'pairs': [['a', 'b']], 'kind': 'bulk', 'lasts_s': 5.0}
    assert waits == [0.5]
    assert found['path_bps'] == path_bps and found['n_windows'] == 3
    assert found['connections'] == pytest.approx(1)
    assert found['connections_median'] == pytest.approx(1)
    assert found['connections_most'] == pytest.approx(3)
    assert _cross({'rate_bps': 1.0, 'windows_bytes': [1.0, 1.0]}, '--seconds',
                  '2')[1]['lasts_s'] == 2.0


@pytest.mark.parametrize(('result', 'words'), [
    ({}, 'No TCP connection from a to b'),
    ({'rate_bps': 1.0, 'windows_bytes': []}, 'too short')])
def test_a_connection_that_told_nothing(result, words, monkeypatch):
    monkeypatch.setattr(measure.time, 'sleep', lambda _s: None)
    with pytest.raises(osc_exceptions.CommandError, match=words):
        _cross(result)


def test_an_order_that_nobody_takes_up_has_its_reason(monkeypatch):
    monkeypatch.setattr(measure.time, 'sleep', lambda _s: None)
    with pytest.raises(osc_exceptions.CommandError,
                       match='measured: no scheduler led'):
        _cross({}, why='no scheduler led')


def test_what_a_calibration_is_told():
    client = Client()
    _calibrate(client, '--hosts', 'a,b,c,d,e', '--seconds', '1.5')
    bulk, *trains = client.asked
    assert bulk == {'pairs': [['a', 'b'], ['c', 'd']], 'kind': 'bulk',
                    'lasts_s': 1.5}
    assert len(trains) == len(calibration.GRID)
    client = Client()
    _calibrate(client)
    assert client.asked[0]['lasts_s'] == 3.0
    # Of a large cloud the first hosts, of a small one none.
    client.n_hosts = 13
    _calibrate(client)
    assert client.asked[-1]['pairs'] == [
        [f'h{i}', f'h{i + 1}'] for i in range(0, 10, 2)]
    with pytest.raises(exception.Invalid, match='at least 2 hosts'):
        _calibrate(client, '--hosts', 'a')


def test_what_is_near_enough_is_chosen():
    strict, lax = (
        next(one for one in _calibrate(Client(500), '--near-enough', share)
             if one.chosen) for share in ('0.04', '1.5'))
    assert strict.packets == 500 > lax.packets
    assert strict.chosen == '[probe]'


@pytest.mark.parametrize('hosts', [4, 16])
def test_the_fewest_and_the_most_paths(hosts):
    rows, _ = _interference(Tree('none'), *(f'h{i}' for i in range(hosts)))
    assert len(rows) == hosts // 2 * (hosts // 2 - 1)


def test_the_plane_and_the_seconds_of_interference():
    client = Tree('p0r0', [PLANES[0] | {'name': 'ib'}])
    asked = client.asked
    _, told = _interference(client, *PATHS[:4], '--plane', 'ib')
    assert 'rack p0r0' in told and asked[0]['lasts_s'] == 5.0
    _, told = _interference(client, *PATHS[:4], '--seconds', '2')
    assert 'No level' in told and asked[-1]['lasts_s'] == 2.0
