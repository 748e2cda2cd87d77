# SPDX-License-Identifier: Apache-2.0

"""What private services have in common, with a server of a few lines."""

import os
import pwd
import signal
import socket
import sys
import time

import psutil
import pytest

from virtco_lab.services import service

_SERVER = '''
import os, signal, socket, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True),
                                          os._exit(0)))
if sys.argv[2:]:
    subprocess.Popen(['sh', '-c', 'sleep 60 & echo child $!; wait'])
one = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    client, _ = one.accept()
    if client.recv(2) == b'hi':
        client.sendall(b'hello')
'''


class Greeter(service.Service):
    package = 'greeter'
    command = sys.executable
    prepared = 0

    @property
    def url(self):
        return f'greeter://{self.port}'

    def prepare(self):
        self.prepared += 1

    def arguments(self):
        return ['-S', '-c', _SERVER, str(self.port)]

    def is_up(self):
        return service.exchange(self.port, b'hi', 5) == b'hello'


class Parent(Greeter):
    def arguments(self):
        return [*super().arguments(), 'with a child']


class Failing(Greeter):
    def arguments(self):
        return ['-S', '-c', 'import sys\nfor i in range(30): print(i)\n'
                'sys.exit(3)']


class Silent(Greeter):
    def is_up(self):
        return False


class Nobodys(Greeter):
    user = 'nobody'


def _child(greeter):
    """Of a child of its own."""
    while 'child' not in greeter.log.read_text():
        time.sleep(0.01)
    word, pid = greeter.log.read_text().split()[:2]
    assert word == 'child'
    return int(pid)


def test_a_service_of_its_own_directory_leaves_nothing():
    with Parent() as greeter:
        assert greeter.is_up()
        assert greeter.name == 'Parent'
        assert greeter.home.name.startswith('virtco-')
        # No signal of a terminal reaches it.
        assert os.getsid(greeter.process.pid) == greeter.process.pid
        child = _child(greeter)
        assert psutil.pid_exists(child)
    assert not greeter.is_up()
    # There is nothing to stay: it is killed at once.
    assert greeter.process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(child)
    assert not greeter.home.exists()
    greeter.stop()


def test_one_whose_data_stay_is_ended_gently_and_its_children_killed(
        tmp_path):
    home = tmp_path / 'of' / 'greeter'
    greeter = Parent(home, service.free_ports(1)[0]).start()
    child = _child(greeter)
    greeter.stop()
    assert greeter.process.returncode == 0
    assert greeter.log.read_text().endswith('told\n')
    assert not psutil.pid_exists(child)


def test_one_that_was_killed_starts_again_with_what_was_prepared(tmp_path):
    greeter = Greeter(tmp_path)
    assert Greeter(tmp_path, 1234).port == 1234
    greeter.stop()
    with greeter:
        pid = greeter.process.pid
        greeter.kill()
        assert greeter.process.returncode == -signal.SIGKILL
        greeter.kill()
        greeter.start()
        assert greeter.process.pid != pid
        assert greeter.prepared == 1
    assert tmp_path.exists()


def test_what_ends_at_its_start_says_how_with_the_end_of_its_log():
    failing = Failing()
    with pytest.raises(service.ServiceFailed) as caught:
        failing.start()
    said = '\n'.join(map(str, range(10, 30)))
    assert str(caught.value) == (
        f'Failing of package greeter ended with status 3; {failing.log} '
        f'ends with:\n{said}')
    failing.stop()
    assert not failing.home.exists()


def test_what_does_not_answer_in_time_is_killed(monkeypatch):
    monkeypatch.setattr(service, 'START_S', -1)
    silent = Silent()
    with pytest.raises(service.ServiceFailed, match='was not up within -1 s'):
        silent.start()
    assert silent.process.returncode == -signal.SIGKILL
    silent.stop()


def test_the_first_log_that_says_anything_is_shown(tmp_path):
    class Telling(Failing):
        def logs(self):
            return [self.home / 'never', self.home / 'empty', self.home / 'b',
                    self.log]

    (tmp_path / 'empty').touch()
    (tmp_path / 'b').write_text('disk full')
    with pytest.raises(service.ServiceFailed, match='b ends with:\ndisk full'):
        Telling(tmp_path).start()


def test_a_program_of_its_package_runs_in_its_directory(tmp_path):
    greeter = Greeter(tmp_path)
    assert greeter.run('sh', '-c', 'pwd; echo $HOME $TMPDIR; cat; id -u'
                       ).split() == [str(tmp_path)] * 3 + [str(os.getuid())]
    with pytest.raises(service.ServiceFailed) as caught:
        greeter.run('sh', '-c', 'echo one; echo two >&2; exit 7')
    assert str(caught.value) == (
        f'Greeter of package greeter needs sh, which ended with status 7; '
        f'{greeter.log} ends with:\none\ntwo')


@pytest.mark.parametrize('uid', [0, 1])
def test_only_root_runs_it_as_its_user_who_owns_its_directory(
        tmp_path, monkeypatch, uid):
    owned = []
    monkeypatch.setattr(os, 'geteuid', lambda: uid)
    monkeypatch.setattr(os, 'chown', lambda *args: owned.append(args))
    gentle = ['setpriv', '--pdeathsig', 'TERM']
    assert Greeter(tmp_path).as_user(['a', 'b']) == [*gentle, '--', 'a', 'b']
    assert not owned
    found = Nobodys(tmp_path).as_user(['a'])
    if uid:
        assert found == [*gentle, '--', 'a']
        assert not owned
    else:
        entry = pwd.getpwnam('nobody')
        assert found == [*gentle, '--reuid', 'nobody', '--regid', 'nobody',
                         '--init-groups', '--', 'a']
        assert owned == [(tmp_path, entry.pw_uid, entry.pw_gid)]


def test_a_service_is_missing_where_its_program_is():
    class Missing(Greeter):
        command = '/usr/bin/no-such-server'

    assert Missing.is_missing()
    assert not Greeter.is_missing()


def test_free_ports_are_different_and_nothing_listens_on_them(monkeypatch):
    ports = service.free_ports(20)
    assert sorted(set(ports)) == ports
    assert len(ports) == 20
    taken = next(port for port in ports if _is_free(port + 1))
    monkeypatch.setattr(service, '_SERVER_PORTS', (taken, taken + 2))
    with socket.create_server((service.ADDRESS, taken)):
        for _ in range(20):
            assert service.free_ports(1) == [taken + 1]


def _is_free(port):
    with socket.socket() as one:
        return one.connect_ex((service.ADDRESS, port)) != 0


def test_no_answer_is_none():
    port, = service.free_ports(1)
    assert service.exchange(port, b'hi', 5) == b''
