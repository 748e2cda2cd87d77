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

"""The netns tier needs root and network namespaces; CI may not skip it."""

import os
import shutil
import subprocess

import pytest


def _missing() -> str | None:
    if os.geteuid() != 0:
        return 'not root'
    for tool in ('ip', 'tc', 'nft'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed'
    name = f'virtco-try-{os.getpid()}'
    made = subprocess.run(['ip', 'netns', 'add', name],
                          capture_output=True, text=True)
    if made.returncode:
        return f'no network namespaces: {made.stderr.strip()}'
    subprocess.run(['ip', 'netns', 'del', name], check=True)
    return None


@pytest.fixture(scope='session', autouse=True)
def netns_capability() -> None:
    missing = _missing()
    if missing is None:
        return
    if os.environ.get('CI'):
        pytest.fail(f'the netns tier must run in CI: {missing}')
    pytest.skip(missing)
