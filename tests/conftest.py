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

"""What all tests share."""

import os
import pathlib

import hypothesis
import pytest

# Machines are noisy: an example that took long is no failure.
hypothesis.settings.register_profile(
    'virtco', deadline=None,
    # CI judges a change by the same examples each time; other runs explore.
    derandomize=bool(os.environ.get('CI')))
hypothesis.settings.load_profile('virtco')

# Rates and deadlines of real packets and processes suffer when the machine
# stands still for a moment. What is broken is broken each time, so a test of
# these tiers is tried again; the summary names each that needed it.
_RERUNS = {'functional': 1, 'netns': 2, 'kernel': 1}


def pytest_collection_modifyitems(items):
    here = pathlib.Path(__file__).parent
    for item in items:
        tier = item.path.relative_to(here).parts[0]
        if tier in _RERUNS:
            item.add_marker(pytest.mark.flaky(reruns=_RERUNS[tier]))
