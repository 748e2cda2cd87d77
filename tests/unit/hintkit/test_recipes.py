# SPDX-License-Identifier: Apache-2.0

"""Snippets of the recipes: their syntax, their commands, and their hints."""

import json
import pathlib
import re
import shlex
import subprocess
import textwrap

import pytest
import yaml

from tests.unit.hintkit import running
from virtco import hints

ROOT = pathlib.Path(__file__).parents[3]
PAGES = sorted((ROOT / 'doc/source/user/recipes').glob('*.rst'))
SAMPLES = ROOT / 'examples' / 'hints'


def snippets(page):
    for match in re.finditer(r'^\.\. code-block:: (\w+)\n\n((?:   .*\n|\n)+)',
                             page.read_text(), re.MULTILINE):
        yield match[1], textwrap.dedent(match[2])


#: The page of ``virtco cast`` makes no hint.
SNIPPETS = [(page.stem, kind, text) for page in PAGES
            if page.stem != 'cast' for kind, text in snippets(page)]


def test_each_page_has_a_snippet_and_stands_in_the_index():
    index, = (page for page in PAGES if page.stem == 'index')
    pages = {page.stem for page in PAGES} - {'index', 'cast'}
    assert pages == {name for name, _kind, _text in SNIPPETS} == {
        'spark', 'mpi', 'pytorch', 'parameter-server', 'kafka', 'heat',
        'terraform', 'ansible', 'magnum'}
    assert all(f'   {page}\n' in index.read_text() for page in pages)


def of_shell(text, tmp_path):
    """The hints of each ``openstack server create``; runs ``virtco hint``."""
    subprocess.run(['bash', '-n'], input=text, text=True, check=True)
    for line in text.replace('\\\n', '').splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ['virtco', 'hint']:
            running.hint(*words[2:])
        elif words[:3] == ['openstack', 'server', 'create']:
            values = dict(words[k + 1].split('=', 1)
                          for k, word in enumerate(words) if word == '--hint')
            cat = re.fullmatch(r'\$\(cat (.*)\)', values.get(hints.TM, ''))
            if cat:
                values[hints.TM] = (tmp_path / cat[1]).read_text().strip()
            count = (int(words[words.index('--min') + 1])
                     if '--min' in words else 1)
            yield values, count


def of_terraform(text, _tmp_path):
    assert text.count('{') == text.count('}')
    found = dict(re.findall(r'"(virtco:\w+)"\s*= (.*)', text))
    assert found.pop(hints.INDEX) == 'tostring(count.index)'
    matrix = re.search(r'jsonencode\(({[^}]*})\)', text)[1]
    found[hints.TM] = json.dumps(json.dumps(json.loads(
        re.sub(r'(\w+) = ', r'"\1": ', matrix))))
    yield ({key: json.loads(value) for key, value in found.items()},
           int(re.search(r'count\s+= (\d+)', text)[1]))


def _walk(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _walk(one)


def of_yaml(text, _tmp_path):
    for found in _walk(yaml.safe_load(text)):
        values = found.get('scheduler_hints')
        named = found.get('schedulerHintAdditionalProperties')
        if named is not None:
            assert all(one['value']['type'] == 'String' for one in named)
            values = {one['name']: one['value']['string'] for one in named}
        if values is not None:
            assert all(isinstance(value, str) for value in values.values())
            yield {key: value for key, value in values.items()
                   if key != hints.INDEX}, 4


READERS = {'bash': of_shell, 'terraform': of_terraform, 'yaml': of_yaml}


@pytest.mark.parametrize('name, kind, text', SNIPPETS)
def test_snippets(name, kind, text, tmp_path, monkeypatch):
    for sample in SAMPLES.iterdir():
        (tmp_path / sample.name).symlink_to(sample)
    monkeypatch.chdir(tmp_path)
    found = list(READERS[kind](text, tmp_path))
    assert found or 'virtco hint' in text
    for values, n_vms in found:
        (tmp_path / 'hints.json').write_text(json.dumps(values))
        checked = json.loads(running.hint(
            'check', 'hints.json', '--vms', str(n_vms), '--format', 'json'))
        if hints.TM in values:
            spare = name == 'kafka'
            assert len(checked['warnings']) == spare, checked['warnings']
            assert checked['n_vms'] == n_vms + spare
