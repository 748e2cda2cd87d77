# SPDX-License-Identifier: Apache-2.0

"""The netns tier needs root and network namespaces; CI may not skip it."""

from collections.abc import Iterator
import os
import shutil
import subprocess

from pyroute2 import netns
import pytest

from tests import run_name
from virtco_lab.emulation import namespaces


def _missing() -> str | None:
    if os.geteuid() != 0:
        return 'not root'
    for tool in ('ip', 'tc', 'nft'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed'
    name = f'{run_name.PREFIX}try'
    made = subprocess.run(['ip', 'netns', 'add', name],
                          capture_output=True, text=True)
    if made.returncode:
        return f'no network namespaces: {made.stderr.strip()}'
    subprocess.run(['ip', 'netns', 'del', name], check=True)
    return None


@pytest.fixture(scope='session', autouse=True)
def netns_capability() -> Iterator[None]:
    missing = _missing()
    if missing is None:
        namespaces.mount_bpf()
        yield
        left = [name for name in netns.listnetns()
                if name.startswith(run_name.PREFIX)]
        assert left == []
        return
    if os.environ.get('CI'):
        pytest.fail(f'the netns tier must run in CI: {missing}')
    pytest.skip(missing)
