# SPDX-License-Identifier: Apache-2.0

"""Programs of Python that start by a fork of a process that is warm.

A controller spends 2.3 seconds of processor time on imports when it starts
by exec. Here one process per process of tests has imported what its programs
need, and nothing else: it has one thread and no file but its own end of a
socket. It forks a child per program, which takes the program's arguments,
environment, directory and standard files, and runs it as ``python -m`` does.

The children are those of a descendant of the tests' process, so that
:mod:`tests.patience` counts their time; they are killed with it. What is
tested about the first moments of a process wants exec instead.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import types

from virtco.conf import opts

ROOT = pathlib.Path(__file__).parents[1]
#: What a controller of any program imports until it serves, and later.
WARM = (
    'virtco.cmd.api', 'virtco.cmd.controller', 'virtco.cmd.distributor',
    'virtco.cmd.manage', 'virtco.cmd.scheduler', 'virtco.cmd.status',
    'virtco.api.deploy', 'virtco.api.health_report', 'virtco.app',
    'virtco.place.adviser', 'virtco.place.placer', 'virtco.place.whatif',
    'virtco.distribute.apart', 'virtco.measure.racks',
    'virtco.solver.planner', 'keystonemiddleware.auth_token', 'numpy.random',
    'psycopg2', 'pymysql', 'scipy.optimize',
    'sqlalchemy.dialects.mysql.pymysql',
    'sqlalchemy.dialects.postgresql.psycopg2',
    'sqlite3', 'tooz.drivers.file', 'tooz.drivers.mysql', 'tooz.drivers.pgsql',
    'tooz.drivers.redis', 'uvloop', 'virtco.osc.shell', 'voluptuous')
_PR_SET_PDEATHSIG = 1
_STATUS = struct.Struct('=i')


class Popen:
    """What of subprocess.Popen the tests use, for a program that is forked.

    :param argv: ``sys.executable``, then ``-m`` with a module or ``-c`` with
        source, then arguments.
    :param stdout: of a file; None: as the tests' own, as with ``stderr``.
    :param warm: modules to import once for this and all that follow.
    """

    def __init__(self, argv, stdin=subprocess.DEVNULL, stdout=None,
                 stderr=None, env=None, cwd=None, warm=()):
        self.args = [os.fspath(arg) for arg in argv]
        assert self.args[0] == sys.executable, self.args
        assert self.args[1] in ('-m', '-c'), self.args
        self.returncode = None
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:
            if stdin == subprocess.DEVNULL:
                stdin = stack.enter_context(open(os.devnull))
            files = [stdin, stdout or 1, stderr or 2]
            if files[2] == subprocess.STDOUT:
                files[2] = files[1]
            self._told, theirs = socket.socketpair()
            stack.enter_context(theirs)
            _server().fork(json.dumps({
                'argv': self.args, 'warm': warm,
                'cwd': os.fspath(cwd or os.getcwd()),
                'env': dict(os.environ if env is None else env)}),
                [one if isinstance(one, int) else one.fileno()
                 for one in files] + [theirs.fileno()])
        told = self._told.recv(_STATUS.size, socket.MSG_WAITALL)
        assert told, 'the process that forks has ended, see above'
        self.pid, = _STATUS.unpack(told)

    def poll(self):
        with self._lock:
            if self.returncode is None and self._is_told(0):
                told = self._told.recv(_STATUS.size, socket.MSG_WAITALL)
                # Who forked it is gone, and took it along.
                self.returncode = (_STATUS.unpack(told)[0] if told
                                   else -signal.SIGKILL)
            return self.returncode

    def wait(self, timeout=None):
        self._is_told(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _is_told(self, timeout):
        # There is no poll where Nova's tests replace what blocks.
        with selectors.DefaultSelector() as selector:
            selector.register(self._told, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run(argv, check=False, timeout=None, **kwargs):
    """Exit code and text of a program that is forked, once it has ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Popen(argv, stdout=out, stderr=err, **kwargs)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    done = subprocess.CompletedProcess(argv, process.returncode, *texts)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The tests' end of the process that forks."""

    def __init__(self):
        self._lock = threading.Lock()
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, '-m', __name__, str(theirs.fileno())],
                cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                # Who imports numpy gets a thread per processor else.
                env=os.environ | {'OPENBLAS_NUM_THREADS': '1'})
        atexit.register(self.stop)

    def fork(self, request, files):
        data = request.encode()
        with self._lock:
            socket.send_fds(self._sock, [struct.pack('=i', len(data))], files)
            self._sock.sendall(data)

    def stop(self):
        self._sock.close()
        self._process.wait()


_servers = {}
_starting = threading.Lock()


def _server():
    """Of this process: its own children do not share it."""
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = _Server()
        return _servers[os.getpid()]


# The process that forks.

def _serve(sock):
    """Fork until the tests end; returns in each child, with its request."""
    children = {}
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while True:
        for number, _events in poll.poll():
            if number in children:
                pid, told = children.pop(number)
                poll.unregister(number)
                os.close(number)
                _, status = os.waitpid(pid, 0)
                with told, contextlib.suppress(OSError):
                    told.sendall(_STATUS.pack(
                        os.waitstatus_to_exitcode(status)))
                continue
            request, files = _receive(sock)
            if request is None:
                return None
            _import(request['warm'])
            # A lock that a thread holds would be held for ever in a child.
            assert len(os.listdir('/proc/self/task')) == 1
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                # Nothing of these is to be closed later, under its number.
                for one in (sock, *(told for _, told in children.values())):
                    one.detach()
                _become(server, request, files)
                return request
            told = _blocking(files.pop())
            for one in files:
                os.close(one)
            told.sendall(_STATUS.pack(pid))
            number = os.pidfd_open(pid)
            children[number] = pid, told
            poll.register(number, select.POLLIN)


def _import(names):
    """Import what is there of these, once."""
    fresh = [name for name in names if name not in sys.modules]
    # Others bring it along, and nothing here uses it; some look for it.
    sys.modules['eventlet'] = None
    for name in fresh:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    del sys.modules['eventlet']
    # It chooses between threads and eventlet by what was there before it.
    assert 'oslo_service' not in sys.modules
    if fresh:
        gc.collect()
        gc.freeze()


def _blocking(number):
    """Make a socket of a file; those of eventlet do not block."""
    found = socket.socket(fileno=number)
    found.setblocking(True)
    return found


def _receive(sock):
    """One request and its four files, or None at the end of the tests."""
    length, files, _, _ = socket.recv_fds(sock, _STATUS.size, 4)
    if not length:
        return None, []
    data = sock.recv(_STATUS.unpack(length)[0], socket.MSG_WAITALL)
    return json.loads(data), files


def _become(server, request, files):
    """Be as a process that was just started."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, 1 << 16)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request['cwd'])
    os.environ.clear()
    os.environ.update(request['env'])
    sys.orig_argv[:] = request['argv']
    faulthandler.enable()


def _run(argv):
    """As the interpreter does with its arguments."""
    _, option, what, *rest = argv
    if option == '-c':
        main = sys.modules['__main__'] = types.ModuleType('__main__')
        sys.argv[:] = ['-c', *rest]
        exec(compile(what, '<string>', 'exec'), main.__dict__)
    else:
        # Its own module is known, but not under this name.
        sys.modules.pop(what, None)
        sys.argv[:] = [what, *rest]
        runpy.run_module(what, run_name='__main__', alter_sys=True)


def _end(status):
    """End without taking apart what was imported, which takes longer than
    most programs run.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            file.flush()
    os._exit(status)


def _status_of(argv):
    """Exit code of a program that ran."""
    try:
        _run(argv)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xff
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    # Their children hear of it, and go when they go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = _blocking(int(sys.argv[1]))
    opts.list_opts()
    _import(WARM)
    request = _serve(sock)
    if request is not None:
        _end(_status_of(request['argv']))


if __name__ == '__main__':
    main()
