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

"""Table, report and command line, without root."""

import html.parser
import json
import subprocess
import sys

import pytest

from virtco.cmd import emulate
from virtco.emulation import report
from virtco.emulation import results
from virtco.emulation import table


def _scheme(name, label, measured_s, timeline=()):
    return results.SchemeResult(
        name, label, tuple(
            results.CoflowResult(coflow, 'g', 3, 5e6, cct_s * 0.95, cct_s,
                                 cct_s * 0.9)
            for coflow, cct_s in zip(('C1', 'C2'), measured_s)),
        {'g': ('h0', 'h0', 'h1')},
        {'h0': (1e6, 0.0), 'h1': (0.0, 1e6)}, timeline, 0.1)


@pytest.fixture
def found():
    timeline = ((10 ** 6, 0), (10 ** 6, 5 * 10 ** 5), (0, 10 ** 5))
    workload = results.WorkloadResult(
        'fig1', 'Two <coflows>', (
            _scheme('a', 'apart', (7.0, 2.0), timeline),
            _scheme('b', 'TA', (4.0, 2.0), timeline),
            _scheme('c', 'joint', (5.0, 0.0), timeline)),
        unit_s=1.0, paper_means=(4.5, 3.0, 2.5))
    rates = (results.HostRate('h0', 1e8, 9.9e7, None),
             results.HostRate('h1', 1e8, 5e7, 5e7, slow=True))
    return results.Results('emulated', 3, 1e8, 2, 0, (workload,), rates,
                           ('Something & other',), 12.0)


class _Page(html.parser.HTMLParser):
    VOID = {'meta', 'br', 'img', 'link'}

    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs
                       if name in ('src', 'href') and value
                       and not value.startswith('#')]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_one_whole_file(found, tmp_path):
    path = report.write(found, tmp_path / 'made')
    page = _Page()
    text = path.read_text()
    page.feed(text)
    assert page.open == []
    assert page.links == []  # nothing is loaded from elsewhere
    assert page.tags.count('svg') == 3
    assert 'Two &lt;coflows&gt;' in text and 'Something &amp; other' in text
    assert '44.4%' in text  # (4.5 - 2.5) / 4.5


def test_json_holds_the_averages(found, tmp_path):
    report.write(found, tmp_path)
    read = json.loads((tmp_path / 'results.json').read_text())
    (workload,) = read['workloads']
    assert workload['relative_speed_up'] == pytest.approx(
        {'a': 2 / 4.5, 'b': 0.5 / 3})
    assert [scheme['mean_measured_s'] for scheme in workload['schemes']] == [
        4.5, 3.0, 2.5]
    assert read['host_rates'][1]['slow'] is True


def test_table_shows_every_number(found):
    console = table.console()
    with console.capture() as capture:
        console.print(table.build(found))
    text = capture.get()
    for shown in ('6.65 →  7.00', '→  4.50', '44%', 'in the paper',
                  'measured', 'joint'):
        assert shown in text
    assert max(map(len, text.splitlines())) <= 118


@pytest.mark.parametrize('arguments, words', [
    (['--hosts', '2'], 'between 3 and 64'),
    (['--hosts', 'six'], 'between 3 and 64'),
    (['--rate', '1bps'], 'between 5 Mbit/s and 1 Gbit/s'),
    (['--rate', 'fast'], "'fast' is not a rate"),
    (['--only', 'fig9'], 'fig9'),
])
def test_wrong_options_are_named(arguments, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        emulate.main(['demo', *arguments])
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_slow_host_must_exist(capsys):
    assert emulate.main(['demo', '--slow-host', 'h6']) == 1
    error = capsys.readouterr().err
    assert '--slow-host' in error and 'h6' in error and 'h0 to h5' in error


def test_simulate_prints_json_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'virtco.cmd.emulate', 'demo', '--simulate',
         '--json', '--only', 'fig1', '--slow-host', '--report-dir',
         str(tmp_path)], check=True, capture_output=True, text=True)
    read = json.loads(done.stdout)
    assert read['mode'] == 'simulated'
    assert any('h1' in note for note in read['notes'])
    assert (tmp_path / 'report.html').exists()


def test_without_root_the_way_out_is_named(monkeypatch, capsys):
    monkeypatch.setattr('os.geteuid', lambda: 1000)
    assert emulate.main(['demo']) == 2
    error = capsys.readouterr().err
    assert 'root' in error and 'tools/demo --simulate' in error
