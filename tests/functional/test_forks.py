# SPDX-License-Identifier: Apache-2.0

"""A program that is forked is as one that was started."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests import forks
from tests import patience
from virtco_lab.emulation import patience as emulated


def python(source, *argv, **kwargs):
    return forks.run([sys.executable, '-c', source, *argv], **kwargs)


def test_arguments_environment_and_files(tmp_path):
    done = python('import os, sys; print(sys.argv, os.getcwd(), '
                  'dict(os.environ)); print("no", file=sys.stderr)',
                  'a b', env={'WHO': 'me'}, cwd=tmp_path)
    assert done.stdout == f"['-c', 'a b'] {tmp_path} {{'WHO': 'me'}}\n"
    assert (done.stderr, done.returncode) == ('no\n', 0)


@pytest.mark.parametrize(('source', 'code', 'said'), [
    ('import sys; sys.exit(3)', 3, ''),
    ('raise SystemExit("why")', 1, 'why\n'),
    ('import os, signal; os.kill(os.getpid(), signal.SIGTERM)',
     -signal.SIGTERM, ''),
    ('1 / 0', 1, 'ZeroDivisionError: division by zero\n')])
def test_how_it_ends(source, code, said):
    done = python(source)
    assert (done.returncode, done.stderr[-len(said):] if said
            else done.stderr) == (code, said)


def test_what_it_left_to_the_end_is_done():
    assert python(
        'import atexit, threading, time\n'
        'atexit.register(print, "last")\n'
        'threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))'
        ').start()').stdout == 'thread\nlast\n'


def test_a_module_may_begin_anew():
    """With its own arguments, by exec."""
    done = forks.run([sys.executable, '-m', __name__, '0'])
    assert done.stdout == f'1 [{"-m"!r}, {__name__!r}, {"1"!r}]\n'


def test_nothing_is_open_and_no_other_thread_there():
    done = python('import os, sys; print(os.listdir("/proc/self/task"), '
                  'sorted(map(int, os.listdir("/proc/self/fd")))[:-1], '
                  '"eventlet" in sys.modules, "scipy.optimize" in '
                  'sys.modules, os.getpid())')
    pid = done.stdout.split()[-1]
    assert done.stdout == f"['{pid}'] [0, 1, 2] False True {pid}\n"


def test_it_is_of_the_family_and_hears_signals():
    process = forks.Popen([sys.executable, '-c',
                           'import signal; signal.pause()'])
    assert process.pid in emulated.family()
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == process.poll() == -signal.SIGKILL
    process.kill()


def test_it_ends_with_the_tests(tmp_path):
    """Also when they are killed."""
    found = tmp_path / 'pid'
    outer = subprocess.Popen([sys.executable, '-c', (
        'import sys, time\n'
        'from tests import forks\n'
        'one = forks.Popen([sys.executable, "-c", "import signal; '
        'signal.pause()"])\n'
        f'open({str(found)!r}, "w").write(f"{{one.pid}} ")\n'
        'time.sleep(3600)')], cwd=forks.ROOT)
    try:
        pid = patience.wait_for(
            lambda: found.exists() and found.read_text().strip(), 'a child')
        assert psutil.pid_exists(int(pid))
    finally:
        outer.kill()
        outer.wait()
    patience.wait_for(lambda: not psutil.pid_exists(int(pid)), 'its end')


def main():
    number = int(sys.argv[1])
    if number:
        print(number, sys.orig_argv[1:])
        return
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], '1'])


if __name__ == '__main__':
    main()
