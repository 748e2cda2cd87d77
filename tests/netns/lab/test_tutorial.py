# SPDX-License-Identifier: Apache-2.0

"""The scripts of the tutorial, in the order of its page."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests import book
from tests import run_name

_ROOT = pathlib.Path(__file__).parents[3]
_SCRIPTS = _ROOT / 'examples/tutorial'
_URL = 'http://192.168.79.1:8791'


@pytest.fixture
def lab(tmp_path):
    directory = tmp_path / 'lab'
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


def _follow(directory, lines):
    """Run the commands of the page; return each with its output."""
    commands = [step for step in book.follow(lines)
                if step.text.startswith('# ')]
    # What comes first prepares the shell that the test has already.
    assert [step.text for step in commands[:3]] == [
        '# tools/setup', '# export PATH=$PWD/.venv/bin:$PATH RUN=vt$$ '
        'LAB=/tmp/virtco-tutorial.$$', '# cd examples/tutorial']
    *followed, clean = commands[3:]
    assert clean.text == '# . ./clean.sh'
    return book.run(followed, cwd=_SCRIPTS,
                    env=_environment(directory) | {'COLUMNS': '76'})


@pytest.mark.real_time(reason='the bytes are timed')
def test_tutorial(lab):
    lines = book.text_of('user/tutorial')
    for step, found in _follow(lab, lines):
        if lines[step.begin:step.end]:
            book.check(lines, step, found)
    coflow = _coflow(lab)
    assert coflow['state'] == 'done'
    assert 0.8 < coflow['measured_cct_s'] / coflow['cct_s'] < 1.5
