# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge`` by a fork of a process that has imported it.

An agent spends 0.4 s of processor time on imports when it starts by exec, and
the tests start a hundred. As ``ip netns exec`` does, it gets the namespace and
a /sys that shows it, but keeps the machine's BPF file system.
"""

import atexit
import contextlib
import ctypes
import multiprocessing
from multiprocessing import forkserver
import os
import runpy
import signal
import sys

from tests import constants as tests_constants

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_BPF = '/sys/fs/bpf'
_MODULE = 'edge_module.cmd'
_server = multiprocessing.get_context('forkserver')
_server.set_forkserver_preload([_MODULE])
# It is waited for, so that its processor time counts for the tests.
atexit.register(forkserver._forkserver._stop)


class Popen:
    """What of subprocess.Popen the tests use.

    :param out: file for what it prints.
    :param err: file for its complaints; None: the same.
    :param constants: see :mod:`tests.constants`.
    """

    def __init__(self, netns, arguments, out, err=None, constants=None):
        self._process = _server.Process(target=_main, daemon=True, args=(
            netns, [str(one) for one in arguments],
            (str(out), str(err or out)), dict(os.environ), constants or {}))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout_s=None):
        self._process.join(timeout_s)
        return self.returncode

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _main(netns, arguments, files, environment, constants):
    enter(netns)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tests_constants.give(constants)
    # Its own module is known, but not under this name.
    del sys.modules[_MODULE]
    sys.argv[:] = [_MODULE, *arguments]
    runpy.run_module(_MODULE, run_name='__main__', alter_sys=True)


def enter(netns):
    """Go into a namespace, with the devices and the pins to be seen."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result):
        if result:
            raise OSError(ctypes.get_errno(), 'no namespace')

    with open(f'/run/netns/{netns}') as handle:
        check(libc.setns(handle.fileno(), _CLONE_NEWNET))
    check(libc.unshare(_CLONE_NEWNS))
    check(libc.mount(b'', b'/', b'none', _MS_SLAVE | _MS_REC, None))
    pins = os.open(_BPF, os.O_PATH | os.O_DIRECTORY)
    check(libc.mount(netns.encode(), b'/sys', b'sysfs', 0, None))
    check(libc.mount(f'/proc/self/fd/{pins}'.encode(), _BPF.encode(), None,
                     _MS_BIND, None))
    os.close(pins)
