# SPDX-License-Identifier: Apache-2.0

"""Network namespaces of one run: names, threads inside them, clean-up.

Every name starts with ``virtco-emu-<run>-``, so that what a run left behind
can be told from anything else on the machine. A run's owner is written to
``RUNS_DIR``; namespaces whose owner is gone are stale.
"""

from collections.abc import Callable
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from typing import TypeVar

import psutil
from pyroute2 import netns

from edge_module.privileged import pinned

PREFIX = 'virtco-emu'
RUNS_DIR = pathlib.Path('/run/virtco-emulate')
_MEMORY_DIR = pathlib.Path('/dev/shm')
_NETNS_DIR = pathlib.Path('/run/netns')
_BPF_DIR = '/sys/fs/bpf'
_CLONE_NEWNET = 0x40000000
_REST = re.compile(r'-([0-9a-f]{6})-[a-z0-9]+')

T = TypeVar('T')


def new_run() -> str:
    """Claim a run id for this process; :func:`release` gives it back."""
    RUNS_DIR.mkdir(parents=True, exist_ok=True, mode=0o755)
    run = secrets.token_hex(3)
    # Nobody may see the directory without its owner: it would look stale.
    fresh = RUNS_DIR / f'.{run}'
    fresh.mkdir(mode=0o700)
    (fresh / 'owner').write_text(f'{os.getpid()} {_started(os.getpid())}\n')
    fresh.rename(run_dir(run))
    return run


def run_dir(run: str) -> pathlib.Path:
    """Return the path of a run's directory, whether or not it exists."""
    return RUNS_DIR / run


def scratch_dir(run: str) -> pathlib.Path:
    """Create a run's directory for databases and files, in memory if possible.

    Databases that wait for a disk make up half of what Nova needs for a
    server.
    """
    if not _MEMORY_DIR.is_dir():
        return run_dir(run)
    path = _MEMORY_DIR / f'{PREFIX}-{run}'
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def name(run: str, role: str) -> str:
    return f'{PREFIX}-{run}-{role}'


def mount_bpf() -> None:
    """Mount the BPF file system, as systemd does, for the edge modules."""
    if not os.path.ismount(_BPF_DIR):
        subprocess.run(['mount', '-t', 'bpf', 'bpf', _BPF_DIR], check=True)


def unpin(namespace: str) -> None:
    """Remove the pins of the edge module of a namespace that goes."""
    with contextlib.suppress(FileNotFoundError):
        number = os.stat(path(namespace)).st_ino
        for pins in pathlib.Path(pinned.DIRECTORY).glob(f'{number}-*'):
            shutil.rmtree(pins)


def create(namespace: str) -> None:
    """Make it in a thread of its own.

    pyroute2 would fork, and the child would inherit this process's signal
    handlers and with them its clean-up.
    """
    def make() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
        netns.attach(namespace, 'thread-self')

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(make).result()


def remove(namespace: str) -> None:
    """Remove it; its interfaces go with it. Absence is fine."""
    unpin(namespace)
    try:
        netns.remove(namespace)
    except FileNotFoundError:
        return


def path(namespace: str) -> str:
    """Return the path of the file by which nsenter enters a namespace."""
    return str(_NETNS_DIR / namespace)


def within(namespace: str) -> tuple[str, str]:
    """Return the beginning of a command that runs inside a namespace."""
    return 'nsenter', f'--net={path(namespace)}'


def enter(namespace: str | int) -> None:
    """Move the calling *thread* into a namespace.

    :param namespace: its name, or a descriptor of its file.
    """
    netns.setns(namespace, flags=0)


def call(namespace: str, function: Callable[[], T]) -> T:
    """Run a function inside a namespace, which this thread then leaves.

    Sockets that it opens stay in the namespace wherever they are used.
    """
    with open('/proc/thread-self/ns/net', 'rb') as outside:
        try:
            enter(namespace)
            return function()
        finally:
            enter(outside.fileno())


def executor(namespace: str,
             threads: int = 1) -> concurrent.futures.ThreadPoolExecutor:
    """Create a thread pool whose threads live in the namespace."""
    return concurrent.futures.ThreadPoolExecutor(
        threads, thread_name_prefix=namespace, initializer=enter,
        initargs=(namespace,))


def connect(src: str, dst: str, address: str, timeout_s: float,
            port: int = 0, prepare: Callable[
                [socket.socket, socket.socket], object]
            = lambda listener, sender: None
            ) -> tuple[socket.socket, socket.socket]:
    """Connect two namespaces by TCP; return the sender and the receiver.

    :param src: namespace that connects.
    :param dst: namespace with this address.
    :param port: port of the receiver; 0 for any.
    :param prepare: sets options of listener and sender before they connect.
    """
    with call(dst, lambda: socket.create_server((address, port))) as listener:
        sender = call(src, socket.socket)
        for one in (listener, sender):
            one.settimeout(timeout_s)
        prepare(listener, sender)
        sender.connect(listener.getsockname())
        return sender, listener.accept()[0]


def list_names(run: str | None = None) -> list[str]:
    """List the namespaces of a run, or of all runs."""
    found = [(n, n.startswith(PREFIX) and _REST.fullmatch(n, len(PREFIX)))
             for n in netns.listnetns()]
    return sorted(n for n, match in found
                  if match and run in (None, match.group(1)))


def list_runs() -> set[str]:
    """List the runs of which a namespace or a directory is left."""
    runs = {n.split('-')[-2] for n in list_names()}
    if RUNS_DIR.is_dir():
        runs |= {entry.name for entry in RUNS_DIR.iterdir()
                 if not entry.name.startswith('.')}
    return runs


def is_stale(run: str) -> bool:
    """Return True unless the process that claimed the run still lives."""
    try:
        pid, started = (run_dir(run) / 'owner').read_text().split()
        return _started(int(pid)) != int(started)
    except (OSError, ValueError):
        return True


def _started(pid: int) -> int:
    """Read when a process started, in ticks after boot.

    Unlike a date, no clock adjustment changes it.
    """
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text()
    return int(fields.rpartition(')')[2].split()[19])


def release(run: str, grace_s: float = 3.0) -> None:
    """End the processes in a run's namespaces and remove all it made."""
    names = list_names(run)
    _end_processes(names, grace_s)
    for namespace in names:
        remove(namespace)
    shutil.rmtree(_MEMORY_DIR / f'{PREFIX}-{run}', ignore_errors=True)
    shutil.rmtree(run_dir(run), ignore_errors=True)


def sweep() -> list[str]:
    """Release every stale run; returns their ids."""
    stale = sorted(run for run in list_runs() if is_stale(run))
    for run in stale:
        release(run)
    return stale


def _end_processes(names: list[str], grace_s: float) -> None:
    for sig in (signal.SIGTERM, signal.SIGKILL):
        for pid in _pids_in(names):
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + grace_s
        while _pids_in(names) and time.monotonic() < deadline:
            time.sleep(0.05)


def _pids_in(names: list[str]) -> list[int]:
    """List live processes in the namespaces, this one excepted."""
    inodes = set()
    for namespace in names:
        try:
            inodes.add(os.stat(path(namespace)).st_ino)
        except FileNotFoundError:
            continue
    pids = []
    for process in psutil.process_iter(['status']):
        if process.info['status'] == psutil.STATUS_ZOMBIE:
            continue
        try:
            inode = os.stat(f'/proc/{process.pid}/ns/net').st_ino
        except OSError:
            continue  # it ended meanwhile
        if inode in inodes and process.pid != os.getpid():
            pids.append(process.pid)
    return pids
