# SPDX-License-Identifier: Apache-2.0

"""What the test cases place and send, at both sizes of the testbed."""

import pathlib

import pytest

from tests.unit.lab.emulation import drawing
from virtco import exception
from virtco_lab.emulation import cases

SCALES = {'few': cases.Scale(8, 20e6), 'paper': cases.Scale(18, 50e6)}


@pytest.mark.parametrize('name', SCALES)
def test_workloads_are_drawn_as_ever(name):
    scale = SCALES[name]
    found = {'scale': [scale.is_paper, scale.slots, scale.width_factor,
                       scale.size_factor, list(scale.widths)]}
    for case in (f'virtco-case{number}' for number in (1, 2, 4, 5, 6)):
        shapes = ('sparse', 'dense') if case == 'virtco-case2' else (
            'medium',)
        for cell in cases.cells(case, shapes, scale):
            free, its_groups = cases.prepare(cell, scale, 3)
            found[cell.key] = [
                cell.setting, cell.shape, cell.background, cell.stretch,
                [host.free[0] for host in free],
                [host.egress_bps for host in free],
                [host.ingress_bps for host in free],
                [[group.name, group.n_vms, group.vm_slots, *(
                    [len(coflow.flows), coflow.size_bytes,
                     max(flow.size_bytes for flow in coflow.flows)]
                    for coflow in group.coflows)] for group in its_groups]]
    drawing.check(f'cases-{name}', found)


def test_a_scale_is_the_papers_from_its_hypervisors_on():
    assert not cases.Scale(17, 1e6).is_paper
    assert cases.Scale(18, 1e6).is_paper


def test_groups_that_fill_all_slots_have_room():
    cell = cases.Cell('virtco-case2', '', 'sparse', False)
    for n_hosts, is_fine in ((6, True), (5, False)):
        scale = cases.Scale(n_hosts, 20e6)
        n_vms = sum(group.n_vms for group in cases.prepare(
            cell, scale, 0)[1])
        assert (n_vms <= n_hosts * scale.slots) is is_fine
        if is_fine:
            cases.check_room(cell, scale, 0)
        else:
            with pytest.raises(exception.Invalid, match=(
                    f'expected {n_vms} free slots .* got 30 on 5 hosts')):
                cases.check_room(cell, scale, 0)


def test_a_bed_has_what_the_background_leaves_of_the_cables():
    scale = SCALES['few']
    bed = cases.bed(scale, pathlib.Path('x'), 3, True)
    assert bed.rates_bps == {
        host.name: host.egress_bps for host in cases.hosts(scale, 3, True)}
    assert max(bed.rates_bps.values()) < bed.link_bps == 20e6
    assert (bed.slots, bed.logs, bed.has_nova) == (
        6, pathlib.Path('x'), False)
    other = cases.bed(scale, pathlib.Path('x'), slots=9, controller={'a': {}})
    assert set(other.rates_bps.values()) == {20e6}
    assert (other.slots, other.controller) == (9, {'a': {}})
