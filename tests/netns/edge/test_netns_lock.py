# SPDX-License-Identifier: Apache-2.0

"""One edge module per network namespace, tested with two processes."""

import contextlib
import errno
import subprocess
import sys

import pytest

from edge_module import netns_lock
from tests.netns.edge import bed as beds
from virtco import exception

pytestmark = pytest.mark.netns

#: Holds the lock, with a child as the helper is one.
OWNER = """
import os, sys
from edge_module import netns_lock
with netns_lock.hold():
    if not os.fork():
        sys.stdin.read()
        os._exit(0)
    print('held', flush=True)
    sys.stdin.read()
"""
#: Takes what a user without privileges may, before the edge module starts.
SQUATTER = """
import os, socket, sys
from edge_module import netns_lock
from edge_module.privileged import kernel_calls as kernel
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name, (
        kernel.open_socket(netns_lock._NETFILTER)) as sock:
    name.bind('\\0virtco-edge:uplink0')
    print(*kernel.send_over(sock, [netns_lock._TAKE]), flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def process(netns, program):
    with subprocess.Popen(
            ['ip', 'netns', 'exec', netns, sys.executable, '-c', program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        made.said = made.stdout.readline().strip()
        yield made
        made.kill()


def is_held(netns):
    return beds.in_netns(netns, netns_lock.is_held)


def hold(netns):
    def enter():
        with netns_lock.hold():
            pass
    beds.in_netns(netns, enter)


def test_a_namespace_has_one_edge_module(make_bed):
    bed = make_bed(2)
    here, elsewhere = bed.ns('h1'), bed.ns('h2')
    with process(here, OWNER) as owner:
        assert owner.said == 'held'
        # A failed attempt takes nothing.
        for _ in range(2):
            with pytest.raises(exception.AlreadyRuns, match='VC-090: '):
                hold(here)
        assert is_held(here) and not is_held(elsewhere)
        hold(elsewhere)
        owner.kill()
        owner.wait()
        # Also where its helper has not ended yet.
        assert not is_held(here)
        hold(here)


def test_a_user_without_privileges_keeps_no_edge_module_out(make_bed):
    here = make_bed(1).ns('h1')
    with process(here, SQUATTER) as squatter:
        assert squatter.said == str(errno.EPERM)
        assert not is_held(here)
        with process(here, OWNER) as owner:
            assert owner.said == 'held'
