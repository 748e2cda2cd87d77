# SPDX-License-Identifier: Apache-2.0

"""One edge module per uplink, tested with two processes."""

import contextlib
import os
import subprocess
import sys
import types

import pytest

from edge_module import uplink_lock
from virtco import exception

OWNER = """
import sys, types
from edge_module import uplink_lock
with uplink_lock.hold(types.SimpleNamespace(edge=types.SimpleNamespace(
        uplink_dev=sys.argv[1], further_uplinks={sys.argv[2]: 0.0}))):
    print('held', flush=True)
    sys.stdin.read()
"""


def conf(dev, *further):
    name = f'{os.getpid()}.%s'
    return types.SimpleNamespace(edge=types.SimpleNamespace(
        uplink_dev=name % dev,
        further_uplinks={name % one: 0.0 for one in further}))


@contextlib.contextmanager
def owner(found):
    with subprocess.Popen(
            [sys.executable, '-c', OWNER, found.edge.uplink_dev,
             *found.edge.further_uplinks], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == 'held\n'
        yield process
        process.kill()


def test_another_process_gets_no_uplink_of_the_first():
    first = conf('a', 'b')
    with owner(first):
        for second in (first, conf('b'), conf('c', 'a')):
            with pytest.raises(exception.UplinkTaken) as told, (
                    uplink_lock.hold(second)):
                pass
            assert str(told.value).startswith('VC-090: the uplink ')
            assert uplink_lock.is_held(second)
        # A failed attempt keeps nothing.
        assert not uplink_lock.is_held(conf('c'))
        with uplink_lock.hold(conf('c', 'd')):
            pass


def test_a_killed_process_keeps_no_uplink():
    first = conf('a', 'b')
    with owner(first) as process:
        process.kill()
        process.wait()
        assert not uplink_lock.is_held(first)


def test_an_uplink_that_is_named_twice_is_no_conflict():
    assert not uplink_lock.is_held(conf('a', 'a'))
