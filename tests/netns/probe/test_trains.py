# SPDX-License-Identifier: Apache-2.0

"""Packet trains through the kernel's shapers."""

import socket
import statistics
import threading
import time

from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module.probe import probing as service
from edge_module.probe import train_protocol as protocol
from tests import patience
from tests.netns import gear
from tests.netns.probe import harness
from virtco.wire import probe_order

real_time = pytest.mark.real_time(reason='times the packets of trains')


def _median_mbit(net, port, n_trains=3, **kwargs):
    found = [net.measure('a', 'b', port, **kwargs) for _ in range(n_trains)]
    assert not any(one.lower_bound for one in found)
    return statistics.median(one.rate_bps for one in found) / 1e6


@gear.full(
    'netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink')
@real_time
@pytest.mark.parametrize('mbit', [20, 50, 100])
def test_rate_of_an_htb_link(net, mbit):
    net.shape_htb('core', 'to-b', f'{mbit}mbit')
    with net.answering('b') as port:
        assert _median_mbit(net, port) == pytest.approx(mbit, rel=0.05)


@gear.full(
    'netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink, '
    'unit/probe/test_trains.py::'
    'test_a_small_token_bucket_does_not_bend_the_rate')
@real_time
@pytest.mark.parametrize('mbit', [20, 100])
def test_rate_of_a_token_bucket(net, mbit):
    net.shape_tbf('core', 'to-b', f'{mbit}mbit', burst='32kb')
    with net.answering('b') as port:
        assert _median_mbit(net, port) == pytest.approx(mbit, rel=0.05)


@gear.full(
    'unit/probe/test_trains.py::'
    'test_a_bucket_that_holds_the_burst_shows_the_sender_only, '
    'unit/probe/test_trains.py::test_a_large_token_bucket_is_noticed')
@real_time
def test_a_bucket_larger_than_the_burst_asks_for_longer_bursts(net):
    net.shape_htb('core', 'to-b', '100mbit', burst='256k',
                  queue_bytes=8 * 2 ** 20)
    with net.answering('b') as port:
        assert _median_mbit(net, port) == pytest.approx(100, rel=0.05)


@gear.full(
    'netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink')
@real_time
def test_the_slower_end_decides(net):
    net.shape_htb('core', 'to-b', '50mbit')
    net.shape_htb('a', harness.UPLINK, '20mbit')
    with net.answering('b') as port:
        rate = _median_mbit(net, port, bypass_classes=False)
        assert rate == pytest.approx(20, rel=0.05)


@real_time
def test_trains_go_past_the_classes_of_the_uplink(net):
    net.shape_htb('core', 'to-b', '50mbit')
    net.shape_htb('a', harness.UPLINK, '20mbit')
    with net.answering('b') as port:
        assert _median_mbit(net, port) == pytest.approx(50, rel=0.05)


@gear.full(
    'unit/probe/test_trains.py::'
    'test_a_queue_that_overflows_does_not_look_like_a_bucket')
@real_time
def test_a_full_queue_costs_packets_but_not_the_rate(net):
    net.shape_htb('core', 'to-b', '50mbit', queue_bytes=150_000)
    with net.answering('b') as port:
        found = [net.measure('a', 'b', port) for _ in range(3)]
    assert min(one.loss for one in found) > 0.2
    rate = statistics.median(one.rate_bps for one in found)
    assert rate == pytest.approx(50e6, rel=0.05)


@gear.full(
    'unit/probe/test_trains.py::test_lost_packets_inside_lower_both_rates')
@real_time
def test_packets_lost_on_the_way_lower_the_rate(net):
    net.shape_htb('a', harness.UPLINK, '50mbit')
    net.filter('core', 'to-a', 'meta l4proto udp numgen random mod 10 < 1 '
                               'drop')
    with net.answering('b') as port:
        found = [net.measure('a', 'b', port, packets=1000, bursts=3,
                             bypass_classes=False) for _ in range(3)]
    loss = statistics.median(one.loss for one in found)
    assert 0.03 < loss < 0.25
    rate = statistics.median(one.rate_bps / (1 - one.loss) for one in found)
    assert rate == pytest.approx(50e6, rel=0.1)


@gear.full(
    'unit/probe/test_probe.py::test_share_of_other_traffic')
@real_time
def test_other_traffic_makes_the_rate_a_lower_bound(net):
    net.shape_htb('core', 'to-b', '50mbit')
    with net.answering('b') as port, _noise(net):
        found = net.measure('a', 'b', port)
    assert found.lower_bound
    assert found.rate_bps < 52e6


class _noise:
    """Datagrams from a to b as fast as the uplink lets them pass."""

    def __init__(self, net):
        self._net = net
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        with self._net.inside('a'), socket.socket(
                socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not self._stop.is_set():
                sock.sendto(bytes(1400), (harness.ADDRESSES['b'], 9))
                time.sleep(0.0004)


def test_nobody_listens(net):
    begin_s = time.monotonic()
    with pytest.raises(protocol.ProbeError, match='does not answer'):
        net.measure('a', 'b', 7472, timeout_s=30.0)
    assert time.monotonic() - begin_s < 20.0


def test_a_dead_peer_times_out(net):
    with net.answering('b') as port:
        net.run('core', 'ip link set dev to-b down')
        # Else the kernel gives its address up after three seconds.
        net.run('a', f'ip neigh replace {harness.ADDRESSES["b"]} lladdr '
                     f'02:00:00:00:00:02 dev {harness.UPLINK}')
        begin_s = time.monotonic()
        with pytest.raises(protocol.ProbeError):
            net.measure('a', 'b', port, timeout_s=1.0)
        # Not the ten seconds of the other end.
        assert 0.9 < time.monotonic() - begin_s < 9.0


def test_a_peer_that_dies_during_the_train_times_out(net):
    net.shape_htb('core', 'to-b', '1mbit')
    with net.answering('b') as port:
        timer = threading.Timer(
            0.5, net.run, ('core', 'ip link set dev to-b down'))
        timer.start()
        begin_s = time.monotonic()
        # The latter where this process stood still itself.
        with pytest.raises(protocol.ProbeError,
                           match='no answer|the time is up'):
            net.measure('a', 'b', port, timeout_s=2.0)
        assert time.monotonic() - begin_s < 9.0
        timer.join()


def test_a_firewall_that_drops_udp_is_named(net):
    net.filter('b', harness.UPLINK, 'meta l4proto udp drop')
    with net.answering('b') as port:
        with pytest.raises(protocol.ProbeError, match='is UDP let through'):
            net.measure('a', 'b', port)


class _Controller:
    """Hands out one train and takes its result."""

    def __init__(self, probe):
        self._probes = [probe] if probe else []
        self.measured = threading.Event()
        self.measurement = None
        self.outbox = self

    def wait_train(self, wait_s):
        if self._probes:
            return self._probes.pop()
        self.measured.wait(0.1)
        return None

    def put_measurement(self, measurement):
        self.measurement = measurement
        self.measured.set()


def _service(role, controller):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco-edge', default_config_files=[])
    conf.set_override('uplink_dev', harness.UPLINK, 'edge')
    conf.set_override('port', 0, 'probe')
    conf.set_override('host', f'host-{role}', 'edge')
    return service.ProbeService(conf, controller)


def test_the_service_measures_what_the_controller_asks_for(net):
    net.shape_htb('core', 'to-b', '20mbit')
    with net.inside('b'):
        peer = _service('b', _Controller(probe_order.Receive(
            probe_id='p1', peer='host-a', key=harness.KEY.secret.hex())))
        peer.start()
    controller = _Controller(probe_order.Send(
        probe_id='p1', peer='host-b', address=peer.address, port=peer.port,
        traffic=probe_order.Train(5, 200, 1472),
        key=harness.KEY.secret.hex()))
    with net.inside('a'):
        asking = _service('a', controller)
        asking.start()
    try:
        assert peer.address == harness.ADDRESSES['b']
        patience.wait_for(controller.measured.is_set, 'a measurement')
    finally:
        asking.stop()
        peer.stop()
    found = controller.measurement
    assert (found.probe_id, found.src, found.dst) == (
        'p1', 'host-a', 'host-b')
    # A busy machine may be late; nothing makes the link faster.
    assert 5e6 < found.rate_bps < 22e6
    assert found.method == 'train' and found.loss == 0
    assert 0 < found.rtt_s <= found.rtt_median_s <= found.rtt_p99_s < 1
