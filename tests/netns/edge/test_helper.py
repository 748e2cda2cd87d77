# SPDX-License-Identifier: Apache-2.0

"""A real helper, and an agent that wants out of it."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest

from edge_module.classify import bpf_maps
from edge_module.privileged import pinned
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
        [sys.executable, '-m', 'tests.netns.edge.escapes', netns,
         os.fspath(directory)], capture_output=True, text=True)
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
    assert found['port'] is found['programs'] is found['missing'] is None
    port = beds.in_netns(netns, socket.if_nametoindex, 'tap1')
    assert sorted(found['links']) == [
        [bpf_maps.PROGRAMS.index(name), port] for name in ('from_vm', 'to_vm')]
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


ASK = '''
import os
import sys
from oslo_config import cfg
from edge_module import edge_options
from edge_module.privileged import guarded
edge_options.register_opts(cfg.CONF)
cfg.CONF([], default_config_files=[])
cfg.CONF.set_override('uplink_dev', 'lo', 'edge')
guarded.start_and_drop('nobody', 'daemon')
print(guarded.bpf_missing())
sys.stdout.flush()
os._exit(0)
'''


@pytest.mark.parametrize('owner, kept, said', [
    ('root', '+bpf,+chown', 'None'),
    # As the units have it: root may not read what belongs to the helper.
    ('daemon', '+bpf', 'None'),
    ('root', '+bpf', 'Permission denied'),
    ('daemon', '+chown', 'load the programs: Operation not permitted')])
def test_a_helper_says_why_it_cannot_classify(owner, kept, said):
    """Without a capability, or a directory, that its unit has to grant; it
    starts all the same.
    """
    done = subprocess.run(
        ['unshare', '--mount', 'sh', '-ec',
         # As systemd mounts it, and tmpfiles.d has the directory.
         'mount -t bpf -o mode=0700 bpf "$0"; '
         'install -d -m 0700 -o "$1" "$2"; shift 2; exec setpriv '
         '--bounding-set "-all,+net_admin,+setuid,+setgid,$1" "$2" -c "$3"',
         os.path.dirname(pinned.DIRECTORY), owner, pinned.DIRECTORY, kept,
         sys.executable, ASK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
