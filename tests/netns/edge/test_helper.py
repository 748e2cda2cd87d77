# SPDX-License-Identifier: Apache-2.0

"""A real helper, and an agent that wants out of it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from tests import run_name
from tests.netns.edge import bed as beds
from tests.netns.edge import escapes

pytestmark = pytest.mark.netns


@pytest.fixture(scope='module')
def tried():
    """What came of each attempt, in a namespace that can be looked at."""
    with tempfile.TemporaryDirectory(prefix=run_name.PREFIX) as directory:
        bed = beds.Bed(1)
        try:
            yield _tried(bed.ns('h1'), pathlib.Path(directory))
        finally:
            bed.close()


def _tried(netns, directory):
    beds.run('ip', 'link', 'add', 'other0', 'type', 'veth', 'peer', 'other1',
             netns=netns)
    beds.run('ip', 'link', 'add', 'tap1', 'type', 'veth', 'peer', 'vm1',
             netns=netns)
    beds.run('ip', 'link', 'set', 'tap1', 'master', 'brv', netns=netns)
    # Of a bridge too, but no VM is behind it.
    beds.run('ip', 'link', 'add', 'slave0', 'type', 'ifb', netns=netns)
    beds.run('ip', 'link', 'set', 'slave0', 'master', 'brv', netns=netns)
    secret = directory / 'secret'
    secret.write_text(f'add table inet {escapes.SECRET}\n')
    secret.chmod(0o600)
    planted = directory / 'planted'
    planted.mkdir()
    (planted / 'planted.py').write_text(
        f'open({os.fspath(directory)!r} + "/ran", "w")\n')
    for path in (directory, planted):
        path.chmod(0o777)
    done = subprocess.run(
        ['ip', 'netns', 'exec', netns, sys.executable, '-m',
         'tests.netns.edge.escapes', os.fspath(directory)],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (netns, directory, json.loads(done.stdout),
            done.stdout + done.stderr)


def test_no_way_leads_out_of_the_helper(tried):
    netns, directory, found, said = tried
    out = {name: result for name, result in found['tries'].items()
           if result.startswith('answered')}
    assert out == {}
    refused = [name for name, result in found['tries'].items()
               if result == 'refused']
    # The others make no sense, or ask the library for what it does not offer.
    assert len(refused) >= len(found['tries']) - 5, found['tries']
    assert escapes.SECRET not in said and not (directory / 'ran').exists()
    # Nothing has come of it.
    assert 'htb' not in beds.run('tc', 'qdisc', 'show', 'dev', 'other0',
                                 netns=netns)
    rules = beds.run('nft', 'list', 'ruleset', netns=netns)
    assert 'set 10.0.0.9' not in rules
    for dev in ('drop', 'other0', 'slave0', 'uplink0'):
        assert dev not in rules
    assert beds.run('ip', '-br', 'link', 'show', 'dev', 'uplink0', 'up',
                    netns=netns)


def test_the_helper_goes_on_and_does_what_it_is_for(tried):
    netns, _, found, _ = tried
    assert found['alive'] and found['uplink'] == []
    assert found['port'] is None
    assert 'htb 7000:' in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                netns=netns)
    filters = beds.run('tc', 'filter', 'show', 'dev', 'uplink0', 'ingress',
                       netns=netns)
    assert 'Egress Redirect to device virtco-in' in filters
    assert 'tbf 11:' in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                 netns=netns)
    assert beds.run('tc', 'filter', 'show', 'dev', 'virtco-in',
                    netns=netns).count('flowid 7000:10') == 1
    assert 'tap1' in beds.run('nft', 'list', 'ruleset', netns=netns)
