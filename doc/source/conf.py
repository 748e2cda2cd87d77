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

import logging
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
if (ROOT / '.git').exists():
    # An sdist carries the notes in this cache because it has no history; what
    # a build of one leaves in a clone is out of date with the next note.
    (ROOT / 'releasenotes/notes/reno.cache').unlink(missing_ok=True)
else:
    # The theme shows the commit, and warns where there is none.
    logging.getLogger('sphinx.openstackdocstheme.ext').addFilter(
        lambda record: 'gitsha' not in record.msg)

project = 'virtco'
copyright = 'virtco developers'
author = 'virtco developers'

extensions = [
    'openstackdocstheme',
    'sphinx.ext.autodoc',
    'sphinx.ext.mathjax',
    'cliff.sphinxext',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'reno.sphinxext',
]

html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
pygments_style = 'native'
