# SPDX-License-Identifier: Apache-2.0

"""Sphinx configuration."""

import importlib.metadata
import logging
import pathlib
import subprocess
import sys

from cliff import sphinxext
import yaml

from virtco.osc import shell

ROOT = pathlib.Path(__file__).parents[2]
CACHE = ROOT / 'releasenotes/notes/reno.cache'


def cache_notes():
    """Write the notes of the work tree for reno, all of one version.

    reno reads notes from history and fails where a commit has no parent, as
    in a shallow clone.
    """
    texts = {str(path.relative_to(ROOT)): path.read_text()
             for path in sorted(CACHE.parent.glob('*.yaml'))}
    CACHE.write_text(yaml.safe_dump({
        'notes': [{'version': version,
                   'files': [[name, ''] for name in texts]}],
        'dates': [],
        'file-contents': {name: yaml.safe_load(text)
                          for name, text in texts.items()}}))


project = 'virtco'
copyright = 'virtco developers'
author = 'virtco developers'
release = importlib.metadata.version('virtco')
version = '.'.join(release.split('.')[:3])

# A line for each note that history ever had.
logging.getLogger('reno').setLevel(logging.WARNING)
if (ROOT / '.git').exists():
    # An sdist carries the notes in this cache because it has no history; what
    # a build of one leaves in a clone is out of date with the next note.
    CACHE.unlink(missing_ok=True)
    if subprocess.run(['git', 'rev-parse', '--is-shallow-repository'],
                      cwd=ROOT, capture_output=True,
                      text=True).stdout == 'true\n':
        cache_notes()

sys.path.insert(0, str(ROOT / 'doc/ext'))
extensions = [
    'api_reference',
    'cliff.sphinxext',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'reno.sphinxext',
    # Sets mathjax_path to a MathJax of its own: pages need no network.
    'sphinx-mathjax-offline',
    'sphinx.ext.autodoc',
    'sphinx.ext.mathjax',
]

# The reference names commands as the shell does.
sphinxext.commandmanager.CommandManager = shell.Commands

html_theme = 'furo'
html_title = f'virtco {version}'
