# SPDX-License-Identifier: Apache-2.0

"""How the machine's TCP is measured, on a fabric that the test makes up."""

import types

import pytest

from virtco_lab.emulation import calibration


@pytest.fixture(name='bed')
def _bed(monkeypatch):
    made = types.SimpleNamespace(story=[], jobs=[], walls_s=[4.0, 2.0])

    class Fabric:
        def __init__(self, run):
            assert run == 'abc123'

        def build(self, bed):
            made.story.append(list(bed.rates_bps.items()))

        def add_vm(self, vm, host):
            made.story.append((vm, host))
            return types.SimpleNamespace(
                host=host, namespace=f'ns-{vm}', address=f'ip-{vm}')

    class Transfer:
        def __init__(self, job, log):
            assert log.name == 'traffic.log'
            made.jobs.append(job)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def run(self):
            return types.SimpleNamespace(wall_s=made.walls_s.pop(0))

    monkeypatch.setattr(calibration.fabric.janitor.namespaces, 'new_run',
                        lambda: 'abc123')
    monkeypatch.setattr(calibration.shaping, 'run_batch', lambda *words: (
        made.story.append(words)))
    monkeypatch.setattr(calibration.fabric.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: made.story.append('swept'))))
    monkeypatch.setattr(calibration.fabric, 'Fabric', Fabric)
    monkeypatch.setattr(calibration.transfers, 'Transfer', Transfer)
    return made


def test_the_best_of_two_trials_between_two_hypervisors_counts(bed):
    # Eight flows of 10 MiB in two seconds.
    assert calibration.measure_bps() == 8 * 8 * 10 * 2 ** 20 / 2
    vms = [('v0', 'h0'), ('v1', 'h1'), ('v2', 'h0'), ('v3', 'h1')]
    assert bed.story == [
        [('h0', 10e9), ('h1', 10e9)], *vms,
        *((f'ns-{vm}', ['link set eth0 gso_max_segs 2'], 'ip')
          for vm, _ in vms), 'swept']
    assert len(bed.jobs) == 2
    job = bed.jobs[0]
    assert job.starts_s == (0.0,)
    assert [(flow.src_namespace, flow.dst_address, flow.dst_port,
             flow.coflow) for flow in job.flows] == [
        (f'ns-{src}', f'ip-{dst}', 5001, 0) for src, its in vms
        for dst, other in vms if its != other]


def test_all_is_swept_where_it_fails(bed):
    bed.walls_s.clear()
    with pytest.raises(IndexError):
        calibration.measure_bps()
    assert bed.story[-1] == 'swept'
