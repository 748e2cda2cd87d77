# SPDX-License-Identifier: Apache-2.0

"""Sphinx configuration."""

import importlib.metadata
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
if (ROOT / '.git').exists():
    # An sdist carries the notes in this cache because it has no history; what
    # a build of one leaves in a clone is out of date with the next note.
    (ROOT / 'releasenotes/notes/reno.cache').unlink(missing_ok=True)

project = 'virtco'
copyright = 'virtco developers'
author = 'virtco developers'
release = importlib.metadata.version('virtco')
version = '.'.join(release.split('.')[:3])

extensions = [
    'cliff.sphinxext',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'reno.sphinxext',
    # Sets mathjax_path to a MathJax of its own: pages need no network.
    'sphinx-mathjax-offline',
    'sphinx.ext.autodoc',
    'sphinx.ext.mathjax',
]

html_theme = 'furo'
html_title = f'virtco {version}'
