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

"""The emulated test cases, with the simulator in the testbed's place."""

import contextlib
import json

import pytest

from virtco.lab.emulation import reproduce
from virtco.lab.emulation import results
from virtco.lab.sim.figures import document
from virtco.lab.sim.figures import virtco as paper


class _Display:
    def say(self, text):
        pass


class _Testbed:
    """Books what would be in the way of the groups' VMs."""

    def __init__(self):
        self.taken = []
        self.present = 0

    def occupy(self, slots):
        self.taken.append(sum(slots.values()))
        self.present += 1
        return [self.present]

    def vacate(self, servers):
        assert servers == [self.present]
        self.present -= 1


@pytest.fixture
def beds(monkeypatch):
    made = []

    @contextlib.contextmanager
    def datacentre(hosts, options, display):
        made.append(_Testbed())
        yield made[-1]
        assert made[-1].present == 0

    def emulate(testbed, label, its_groups, scheme, display):
        assert testbed.present == 1
        return results.SchemeResult(
            scheme.name, scheme.label, tuple(
                results.CoflowResult(coflow.name, group.name, group.n_vms,
                                     coflow.size_bytes, 2.0, 2.2, 2.0)
                for group in its_groups for coflow in group.coflows), {}, {})

    monkeypatch.setattr(reproduce, '_datacentre', datacentre)
    monkeypatch.setattr(reproduce, '_emulate', emulate)
    return made


@pytest.mark.parametrize('name', reproduce.FIGURES)
def test_table_is_whole_and_tells_the_distance(name, beds, tmp_path):
    found = reproduce.FIGURES[name](
        reproduce.Options(50e6, (0,), 'sparse', tmp_path), _Display())
    assert found.rows
    assert {len(row) for row in found.rows} == {len(found.columns)}
    cells = [row[column] for row in found.rows
             for column, title in enumerate(found.columns)
             if title.endswith('off %') and row[column] is not None]
    assert set(cells) == {10.0}
    assert any('the furthest' in note and '10.0 %' in note
               for note in found.notes)


def test_background_leaves_the_slots_of_the_simulator(beds, tmp_path):
    options = reproduce.Options(50e6, (3,), 'sparse', tmp_path)
    reproduce.case2(options, _Display())
    assert [bed.taken for bed in beds] == [[0], [paper.BACKGROUND_VMS]]
    del beds[:]
    reproduce.case1(options, _Display())
    n_slots = paper.N_HOSTS * paper.SLOTS
    assert beds[0].taken == [n_slots - 1.5 * n_vms
                             for n_vms in (10, 20, 40, 10, 20, 40)]


@pytest.mark.parametrize('name', reproduce.FIGURES)
def test_what_was_measured_is_recorded_with_its_table(name, beds, tmp_path):
    found = reproduce.FIGURES[name](
        reproduce.Options(50e6, (0,), 'sparse', tmp_path), _Display())
    document.write_measured(tmp_path, found, {
        'commit': 'c0ffee', 'machine': 'some machine'}, 'a command')
    kept = json.loads((tmp_path / f'{found.name}.json').read_text())
    assert kept['rows'] == json.loads(json.dumps(found.rows))
    assert kept['made']['commit'] == 'c0ffee'
    text = (tmp_path / f'{found.name}.inc').read_text()
    assert '``a command``: commit c0ffee, some machine.' in text
    table = [line.split('","') for line in text.splitlines()
             if line.startswith('   "')]
    # A wide one is turned on its side.
    assert {len(row) for row in table} == {
        len(found.columns) if name == 'virtco-case2'
        else 1 + len(found.rows)}
    assert sum(row.count('10') + row.count('10"') for row in table) >= len(
        reproduce.SCHEMES)
