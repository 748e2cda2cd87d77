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
