# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``virtco measure calibrate`` leaves what the controller can read."""

import io
import types

from osc_lib import exceptions as osc_exceptions
from oslo_config import cfg
import pytest

from virtco.conf import probe as probe_conf
from virtco.measure import calibration
from virtco.osc import measure

TCP_BPS = 95e6


class Client:
    """A cloud of four hosts whose short trains say twice the rate.

    :ivar asked: kinds of the measurements that were ordered.
    """

    def __init__(self, enough_packets=200, fails=False):
        self.asked = []
        self._enough = enough_packets
        self._fails = fails

    def hosts(self):
        return [{'host': f'h{i}'} for i in range(4)]

    def ask_probes(self, **request):
        self.asked.append(request)
        return str(len(self.asked) - 1)

    def asked_probes(self, probe_id):
        request = self.asked[int(probe_id)]
        result = {'rate_bps': TCP_BPS}
        if request['kind'] == 'train':
            is_short = request['packets'] < self._enough
            frames_bps = TCP_BPS / calibration.tcp_bps(1.0)
            result = {} if self._fails else {
                'rate_bps': frames_bps * (2 if is_short else 1)}
        return {'done': True, 'results': [
            {'src': src, 'dst': dst, **result}
            for src, dst in request['pairs']]}


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
    chosen, = (one for one in entries if one['chosen'])
    read = _read(path)
    assert (read.bursts, read.packets, read.packet_bytes) == (
        chosen['bursts'], chosen['packets'], chosen['packet_bytes'])
    assert read.packets == 500
    assert [one.name for one in tmp_path.iterdir()] == ['trains.conf']
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
