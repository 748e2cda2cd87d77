# SPDX-License-Identifier: Apache-2.0

"""Hypervisors that measure each other: who is started and asked what."""

import contextlib
import types

import pytest

from virtco_lab.emulation.measured import bed as beds


class Pool:
    """Runs at once what it is given, in the name of its namespace."""

    def __init__(self, story, namespace):
        self._story, self._namespace = story, namespace

    def submit(self, function, *words):
        self._story.append(('in', self._namespace, getattr(
            function, '__name__', function), *words))
        found = function(*words)
        return types.SimpleNamespace(result=lambda: found)


class Responder:
    story = None

    def __init__(self, address, port, settings):
        self.asked = address, port, settings
        self.port = 9000 + len(self.story)

    def expect(self, key, lasts_s):
        self.story.append((*self.asked, key, lasts_s))

    def start(self):
        self.story.append('answers')

    def stop(self):
        self.story.append(f'{self.asked[0]} ends')


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []

    class Fabric:
        core = 'core'

        def __init__(self, run):
            assert run == 'abc123'
            self.hypervisors = {}

        def build(self, bed):
            for host, rate_bps in bed.rates_bps.items():
                made.append((host, rate_bps, bed.bucket_bytes))
                self.hypervisors[host] = types.SimpleNamespace(
                    namespace=f'ns-{host}', address=f'ip-{host}')

        def add_vm(self, vm, host):
            made.append((vm, host))
            return types.SimpleNamespace(namespace=f'ns-{vm}',
                                         address=f'ip-{vm}')

    @contextlib.contextmanager
    def executor(namespace, threads):
        assert threads == 16
        yield Pool(made, namespace)

    monkeypatch.setattr(Responder, 'story', made)
    monkeypatch.setattr(beds.responder, 'Responder', Responder)
    monkeypatch.setattr(beds.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(beds.namespaces, 'executor', executor)
    monkeypatch.setattr(beds.fabric_module.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: made.append('dismissed'))))
    monkeypatch.setattr(beds.fabric_module, 'Fabric', Fabric)
    monkeypatch.setattr(beds, '_tune_tcp', lambda window: (
        made.append(f'window {window}')))
    monkeypatch.setattr(beds.sender, 'measure',
                        lambda *words: ('measured', *words))
    monkeypatch.setattr(beds.bulk_sender, 'transfer',
                        lambda *words: ('sent', *words))
    return made


def _started(name, key):
    return [('in', f'ns-{name}', 'start'), 'window 5000',
            (f'ip-{name}', 0, beds.FREE, key, 86_400.0), 'answers']


@pytest.mark.parametrize('bucket_bytes', [None, 7000])
def test_every_hypervisor_answers_and_all_is_taken_away(story, bucket_bytes):
    rates_bps = {'h0': 8e6, 'h1': 4e6}
    with beds.Bed(beds.beds.Bed(
            rates_bps, bucket_bytes=bucket_bytes), 5000).built() as bed:
        built = list(story)
        story.clear()
        bed.add_vm('v', 'h1')
        assert story == [('v', 'h1'), *_started('v', bed._key)]
        story.clear()
    assert built == [
        ('h0', 8e6, bucket_bytes), ('h1', 4e6, bucket_bytes),
        *_started('h0', bed._key), *_started('h1', bed._key)]
    assert story == ['ip-v ends', 'ip-h1 ends', 'ip-h0 ends', 'dismissed']
    assert len(bed._key.secret) == 32


def test_one_measures_the_other_by_its_own_key(story):
    with beds.Bed(beds.beds.Bed({'h0': 8e6, 'h1': 4e6})).built() as bed:
        story.clear()
        setting = beds.calibration.Setting(3, 50)
        end = bed._ends['h1']
        assert end[0] == 'ip-h1' and end[1] > 9000
        train = beds.probe_order.Train(3, 50, beds.wire.PACKET_BYTES)
        assert bed.train('h0', 'h1', setting).result() == (
            'measured', *end, train, beds.FREE, bed._key)
        assert bed.train('h0', 'h1', setting, beds.PRODUCT).result()[4] == (
            beds.PRODUCT)
        sent = ('sent', *end, beds.probe_order.Bulk(2.5), beds.FREE, bed._key)
        assert bed.bulk('h0', 'h1', 2.5).result() == sent
        assert bed.bulks([('h0', 'h1'), ('h1', 'h0')], 2.5) == [
            sent, ('sent', *bed._ends['h0'], *sent[3:])]
        assert {line[1] for line in story[:3]} == {'ns-h0'}
        assert bed.path_bps('h0', 'h1') == bed.path_bps('h1', 'h0') == 4e6


def test_nothing_is_refused_or_repeated_but_in_the_product():
    assert beds.FREE == beds.protocol.Settings(
        timeout_s=60.0, max_sending_s=50.0, max_bytes=2 ** 30,
        max_trains_per_minute=10 ** 6, bypass_classes=False, repeats=False)
    assert beds.PRODUCT == beds.protocol.Settings(
        timeout_s=10.0, max_sending_s=2.5, max_bytes=2 ** 24)
    assert beds.BUCKETS == {'small bucket': None,
                            'bucket of 256 KB': 262_144}
