# SPDX-License-Identifier: Apache-2.0

"""The machine's clock is set by an hour while a controller runs."""

import time

import pytest

from tests import patience
from tests.functional.controller import harness

WIRE = 1.0456
# libfaketime also sets the clocks that count a thread's work.
CUSTOMIZE = '''
import pathlib, time
real = time.time
path = pathlib.Path(__file__).with_name('clock')
time.time = lambda: real() + float(path.read_text())
'''


@pytest.fixture
def clock(tmp_path):
    """Sets the clock that the controller's process reads."""
    path = tmp_path / 'python' / 'clock'
    path.parent.mkdir()
    path.with_name('sitecustomize.py').write_text(CUSTOMIZE)

    def step(seconds):
        new = path.with_suffix('.new')
        new.write_text(str(seconds))
        new.rename(path)
    step(0)
    return step


@pytest.fixture
def controller(clock, tmp_path):
    found = harness.ControllerProcess(tmp_path, wrapper=[
        'env', f'PYTHONPATH={tmp_path / "python"}'])
    yield found.start()
    found.stop(9)


@pytest.mark.parametrize('step_s', [3600, -3600])
def test_an_hour_is_no_time(controller, clock, step_s):
    tenant = controller.tenant()
    planned = tenant.place(20, 'later', num_instances=4,
                           hosts={'h2': 2, 'h3': 2})['host']
    hosts = tenant.launch(2, matrix='[[0, "10MB"], [0, 0]]',
                          hosts={'h0': 1, 'h1': 1})
    edges = tenant.edges(hosts)
    sender = edges[hosts[0]]
    policy = patience.wait_for(
        lambda: (found := sender.policy()) and found['flows'] and found,
        'the policy')
    sender.count(tenant.coflow()['id'], 4e6 * WIRE, hosts[1])
    sender.report()
    clock(step_s)
    controller.find_in_log(r'The clock was set by .\d+ s')
    # In which the reaper looks several times.
    time.sleep(0.5)
    assert tenant.stored(20)['host_now'] == planned
    assert tenant.coflow('later')['hosts'] == [
        tenant.name(host) for _index, host in sorted(
            tenant.stored(20)['rows'].items())]
    # The coflow goes on, and ends when it ends.
    assert sender.policy()['flows'] == policy['flows']
    sender.count(tenant.coflow()['id'], 6e6 * WIRE, hosts[1])
    sender.report()
    patience.wait_for(lambda: tenant.coflow()['state'] == 'done',
                      'the end of the coflow')
    coflow = tenant.coflow()
    assert 0 < coflow['measured_cct_s'] < 600
