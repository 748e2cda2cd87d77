# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""virtco-cast as its users see it: real processes, real bytes, a kill."""

import os
import re
import subprocess
import sys

import pytest

from tests import patience

_COMMAND = [sys.executable, '-m', 'virtco.cast.command']
_SIZE_BYTES = 8_000_000


@pytest.fixture
def start(tmp_path):
    started = []

    def call(name, *words):
        log = tmp_path / f'{name}.log'
        with log.open('w') as file:
            started.append(subprocess.Popen(
                [*_COMMAND, *words], stdout=file, stderr=subprocess.STDOUT))
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


def _receive(start, tmp_path, url, name):
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    return start(name, 'receive', url, str(directory), '--name', name,
                 '--address', '127.0.0.1')


def test_all_get_a_directory_though_one_is_killed(start, tmp_path):
    source = tmp_path / 'model'
    (source / 'deeper').mkdir(parents=True)
    (source / 'weights').write_bytes(os.urandom(_SIZE_BYTES))
    (source / 'deeper' / 'words').write_text('a\nb\n')
    sender, url = _send(start, source, 3, '--rate', '16Mbit/s')
    names = ('a', 'b', 'c')
    receivers = {name: _receive(start, tmp_path, url, name)
                 for name in names}
    weights = tmp_path / 'c' / 'model' / 'weights'
    patience.wait_for(lambda: weights.exists()
                      and weights.stat().st_blocks * 512 > _SIZE_BYTES // 8,
                      'some bytes at the one to kill')
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


@pytest.mark.parametrize('words, said', [
    (['send', '/none', '--receivers', '1'], 'path: /none'),
    (['receive', 'http://127.0.0.1:9/key', '/none'], 'directory: /none')])
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
