# SPDX-License-Identifier: Apache-2.0

"""virtco-cast as its users see it: real processes, real bytes, a kill."""

import os
import re
import resource
import subprocess
import sys

import pytest

from tests import patience

_COMMAND = [sys.executable, '-m', 'virtco_tenant.cast.command']
_SIZE_BYTES = 8_000_000


@pytest.fixture
def start(tmp_path):
    started = []

    def call(name, *words, **options):
        log = tmp_path / f'{name}.log'
        with log.open('w') as file:
            started.append(subprocess.Popen(
                [*_COMMAND, *words], stdout=file, stderr=subprocess.STDOUT,
                **options))
        return started[-1], log
    yield call
    for process in started:
        process.kill()
        process.wait()


def _send(start, path, receivers, *words):
    process, log = start('send', 'send', str(path), '--receivers',
                         str(receivers), '--name', 'src', '--address',
                         '127.0.0.1', *words)
    patience.wait_for(lambda: re.search(r'http://\S+', log.read_text()),
                      'the address of the cast')
    return process, re.search(r'http://\S+', log.read_text())[0]


def _receive(start, tmp_path, url, name, *words, **options):
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    return start(name, 'receive', url, str(directory), '--name', name,
                 '--address', '127.0.0.1', *words, **options)


def _some_bytes(path, size_bytes):
    patience.wait_for(lambda: path.exists()
                      and path.stat().st_blocks * 512 > size_bytes // 8,
                      f'some bytes of {path}')


def test_all_get_a_directory_though_one_is_killed(start, tmp_path):
    source = tmp_path / 'model'
    (source / 'deeper').mkdir(parents=True)
    (source / 'weights').write_bytes(os.urandom(_SIZE_BYTES))
    (source / 'deeper' / 'words').write_text('a\nb\n')
    sender, url = _send(start, source, 3, '--rate', '16Mbit/s')
    names = ('a', 'b', 'c')
    receivers = {name: _receive(start, tmp_path, url, name)
                 for name in names}
    _some_bytes(tmp_path / 'c' / 'model' / 'weights', _SIZE_BYTES)
    receivers['c'][0].kill()
    receivers['c'][0].wait()
    receivers['c'] = _receive(start, tmp_path, url, 'c')
    patience.wait_for(lambda: sender.poll() is not None, 'the end')
    assert sender.returncode == 0
    for name, (process, log) in receivers.items():
        patience.wait_for(lambda process=process: process.poll() is not None,
                          f'the end of {name}')
        assert process.returncode == 0, log.read_text()
        assert 'checked' in log.read_text()
        got = tmp_path / name / 'model'
        assert (got / 'weights').read_bytes() == (
            source / 'weights').read_bytes()
        assert (got / 'deeper' / 'words').read_text() == 'a\nb\n'


def _path(tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(os.urandom(_SIZE_BYTES // 2))
    return path


def test_who_is_killed_for_good_keeps_nobody(start, tmp_path):
    """Two gates of a rack: nobody else has what they had just fetched."""
    path = _path(tmp_path)
    sender, url = _send(start, path, 5, '--rate', '16Mbit/s', '--wait', '3')
    receivers = {name: _receive(start, tmp_path, url, name, '--cluster',
                                name[0])
                 for name in ('a1', 'a2', 'a3', 'b1', 'b2')}
    _some_bytes(tmp_path / 'a1' / 'file', _SIZE_BYTES // 2)
    for name in ('a1', 'a2'):
        receivers[name][0].kill()
    for name in ('a3', 'b1', 'b2'):
        process, log = receivers[name]
        assert patience.wait_end(process, f'the end of {name}', log=log) == 0
        assert (tmp_path / name / 'file').read_bytes() == path.read_bytes()
    assert patience.wait_end(sender) == 1
    said = (tmp_path / 'send.log').read_text().splitlines()[-1]
    assert '2 of 5 did not get all: a1: gone' in said and 'a2: gone' in said


def test_a_sender_that_is_killed_comes_back(start, tmp_path):
    path = _path(tmp_path)
    key = ('--key', 'k' * 16, '--rate', '16Mbit/s')
    sender, url = _send(start, path, 2, *key)
    receivers = [_receive(start, tmp_path, url, name) for name in ('a', 'b')]
    _some_bytes(tmp_path / 'a' / 'file', _SIZE_BYTES // 2)
    sender.kill()
    sender.wait()
    port = url.split(':')[2].split('/')[0]
    sender, again = _send(start, path, 2, *key, '--port', port)
    assert again == url
    for process, log in receivers:
        assert patience.wait_end(process, 'a receiver', log=log) == 0
    assert patience.wait_end(sender) == 0
    assert (tmp_path / 'b' / 'file').read_bytes() == path.read_bytes()


def test_files_that_change_are_told_and_never_mixed(start, tmp_path):
    path = _path(tmp_path)
    key = ('--key', 'k' * 16)
    sender, url = _send(start, path, 1, *key, '--rate', '8Mbit/s')
    port = url.split(':')[2].split('/')[0]
    receiver, log = _receive(start, tmp_path, url, 'a')
    _some_bytes(tmp_path / 'a' / 'file', _SIZE_BYTES // 2)
    with path.open('r+b') as file:
        file.write(b'other')
    assert patience.wait_end(sender) == 1
    assert patience.wait_end(receiver, log=log) == 1
    for said in (log, tmp_path / 'send.log'):
        assert 'file changed while it was sent' in said.read_text()
    # Between a kill and the return of the sender.
    sender, url = _send(start, path, 1, *key, '--port', port, '--rate',
                        '8Mbit/s')
    receiver, log = _receive(start, tmp_path, url, 'b')
    _some_bytes(tmp_path / 'b' / 'file', _SIZE_BYTES // 2)
    sender.kill()
    sender.wait()
    path.write_bytes(os.urandom(_SIZE_BYTES // 2 - 1))
    sender, url = _send(start, path, 1, *key, '--port', port)
    assert patience.wait_end(receiver, log=log) == 1
    assert 'started again with other files' in log.read_text()
    receiver, log = _receive(start, tmp_path, url, 'b')
    assert patience.wait_end(receiver, log=log) == 0
    assert patience.wait_end(sender) == 0
    assert (tmp_path / 'b' / 'file').read_bytes() == path.read_bytes()


def test_a_full_disk_is_told_and_keeps_nobody(start, tmp_path):
    path = _path(tmp_path)
    sender, url = _send(start, path, 2)
    full, log = _receive(start, tmp_path, url, 'full', preexec_fn=lambda: (
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))))
    other, _log = _receive(start, tmp_path, url, 'other')
    assert patience.wait_end(full, log=log) == 1
    # What it says is about writing beyond the limit or reading it again.
    assert re.search(r'^virtco-cast: \S+/full/file: .+\.$', log.read_text(),
                     re.MULTILINE)
    assert patience.wait_end(other) == 0
    assert (tmp_path / 'other' / 'file').read_bytes() == path.read_bytes()
    assert patience.wait_end(sender) == 1
    assert 'full: ' in (tmp_path / 'send.log').read_text()


def test_names_and_links_of_a_directory(start, tmp_path):
    """Links are followed; what holds no bytes of a file is left out."""
    source = tmp_path / 'model'
    (source / 'nothing').mkdir(parents=True)
    (source / 'empty').touch()
    (source / 'größe ☃').write_text('x')
    (source / 'link').symlink_to('größe ☃')
    (source / 'dangling').symlink_to('nowhere')
    for number in range(200):
        (source / f'f{number}').write_text(f'{number}\n')
    sender, url = _send(start, source, 1)
    process, log = _receive(start, tmp_path, url, 'a')
    assert patience.wait_end(process, log=log) == 0
    assert patience.wait_end(sender) == 0
    got = tmp_path / 'a' / 'model'
    assert {path.name: path.read_text() for path in got.iterdir()} == {
        path.name: path.read_text() for path in source.iterdir()
        if path.is_file()}


@pytest.mark.parametrize('words, said', [
    (['send', '/none', '--receivers', '1'],
     'path: expected an existing file or'),
    (['send', '/etc/hostname', '--receivers', '1', '--address', '192.0.2.1'],
     '--port: expected a free port of this VM'),
    (['send', '/etc/hostname', '--receivers', '1', '--history',
      '/etc/hostname'], '--history: expected a file written by'),
    (['receive', 'nonsense', '/tmp'], 'http://HOST:PORT/KEY'),
    (['receive', 'http://127.0.0.1:9/key', '/none'],
     'directory: expected an existing directory, got /none')])
def test_wrong_words_end_in_one_line(words, said):
    done = subprocess.run([*_COMMAND, *words], text=True,
                          capture_output=True)
    assert done.returncode == 1
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_another_key_is_told(start, tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(b'x' * 1000)
    _sender, url = _send(start, path, 1)
    done = subprocess.run(
        [*_COMMAND, 'receive', url[:-1], str(tmp_path)], text=True,
        capture_output=True)
    assert done.returncode == 1
    assert 'address of the cast' in done.stderr
