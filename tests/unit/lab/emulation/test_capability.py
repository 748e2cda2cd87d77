# SPDX-License-Identifier: Apache-2.0

"""Whether this machine can run the testbed, told in one line."""

import subprocess
import types

import pytest

from virtco_lab.emulation import capability


@pytest.fixture(name='machine')
def _machine(monkeypatch):
    """One that can do all, but for what the test says."""
    made = types.SimpleNamespace(uid=0, missing=(), run_error=None,
                                 error=None, story=[])

    def new_run():
        if made.run_error:
            raise made.run_error
        return 'abc123'

    class Fabric:
        def __init__(self, run):
            assert run == 'abc123'

        def build(self, bed):
            made.story.append(list(bed.rates_bps.items()))
            if made.error:
                raise made.error

        def add_vm(self, vm, host):
            made.story.append((vm, host))

    monkeypatch.setattr(capability.os, 'geteuid', lambda: made.uid)
    monkeypatch.setattr(capability.shutil, 'which', lambda tool: (
        None if tool in made.missing else f'/bin/{tool}'))
    monkeypatch.setattr(capability.namespaces, 'new_run', new_run)
    monkeypatch.setattr(capability.namespaces, 'release', lambda run: (
        made.story.append(f'released {run}')))
    monkeypatch.setattr(capability.fabric, 'Fabric', Fabric)
    return made


def test_the_smallest_fabric_is_built_and_removed(machine):
    capability.check()
    assert machine.story == [[('try', 1e8)], ('try', 'try'),
                             'released abc123']


@pytest.mark.parametrize('uid', [1, 1000])
def test_others_than_root_cannot(machine, uid):
    machine.uid = uid
    with pytest.raises(capability.CannotEmulate, match='it needs root'):
        capability.check()
    assert not machine.story


@pytest.mark.parametrize(('changes', 'said'), [
    ({'missing': ('nft', 'tc', 'ip')},
     'ip, tc, nft not found .see bindep.txt.'),
    ({'run_error': OSError(28, 'No space')}, 'No space'),
    ({'error': subprocess.CalledProcessError(
        1, ['nsenter', '--net=x', 'tc'], stderr=' no htb \n')},
     'tc says no htb\\.'),
    ({'error': OSError(1, 'denied')}, 'no network namespaces.*denied')])
def test_what_is_missing_is_named(machine, changes, said):
    vars(machine).update(changes)
    with pytest.raises(capability.CannotEmulate, match=said):
        capability.check()
    assert machine.story[-1:] == (['released abc123'] if machine.error
                                  else [])
