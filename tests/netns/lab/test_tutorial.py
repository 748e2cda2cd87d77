# SPDX-License-Identifier: Apache-2.0

"""The scripts of the tutorial, in the order of its page."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests import patience
from tests import run_name

_ROOT = pathlib.Path(__file__).parents[3]
_SCRIPTS = _ROOT / 'examples/tutorial'
_URL = 'http://192.168.79.1:8791'


@pytest.fixture
def lab(tmp_path):
    directory = tmp_path / 'lab'
    _run(directory, 'network')
    yield directory
    _run(directory, 'clean')


def _environment(directory):
    return os.environ | {
        'LAB': str(directory), 'RUN': run_name.PREFIX, 'VIRTCO_URL': _URL,
        'PATH': f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'}


def _run(directory, name):
    done = subprocess.run(
        ['bash', '-e', str(_SCRIPTS / f'{name}.sh')], text=True, timeout=120,
        env=_environment(directory), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _ask(directory, *command):
    done = subprocess.run(
        ['ip', 'netns', 'exec', f'{run_name.PREFIX}-switch', *command],
        text=True, timeout=60, env=_environment(directory),
        capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def _coflow(directory):
    coflow, = _ask(directory, 'curl', '-fsS', f'{_URL}/v1/coflows')['coflows']
    return coflow


def test_page_names_every_script_in_the_tested_order():
    page = (_ROOT / 'doc/source/user/tutorial.rst').read_text()
    assert re.findall(r'tutorial/(\w+)\.sh', page) == [
        'network', 'controller', 'edges', 'group', 'boot', 'send', 'clean']


@pytest.mark.real_time(reason='the bytes are timed')
def test_tutorial(lab):
    _run(lab, 'controller')
    patience.wait_for(lambda: _ask(lab, 'curl', '-fsS', f'{_URL}/health'),
                      'the controller', log=lab / 'controller.log')
    _run(lab, 'edges')
    patience.wait_for(
        lambda: len(_ask(lab, 'virtco', 'host', 'list', '-f', 'json')) == 2,
        'both hypervisors', log=lab / 'h1/edge.log')
    _run(lab, 'group')
    answers = [json.loads((lab / f'vm{vm}.json').read_text())
               for vm in (0, 1)]
    assert [answer['status'] for answer in answers] == ['planned'] * 2
    assert {answer['host'] for answer in answers} == {'h1', 'h2'}
    _run(lab, 'boot')
    patience.wait_for(lambda: _coflow(lab)['state'] == 'active',
                      'the coflow', log=lab / 'controller.log')
    shown = _run(lab, 'send')
    assert re.search(r'^7000:10 +copy ', shown, re.MULTILINE), shown
    # The measured time is written down a moment after the end.
    patience.wait_for(lambda: _coflow(lab)['measured_cct_s'], 'its end',
                      log=lab / 'controller.log')
    coflow = _coflow(lab)
    assert coflow['state'] == 'done'
    assert 0.8 < coflow['measured_cct_s'] / coflow['cct_s'] < 1.5
