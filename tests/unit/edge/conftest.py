# SPDX-License-Identifier: Apache-2.0

"""A directory of devices in place of /sys/class/net."""

import pytest

from edge_module import rdma


class Card:
    """Counters of RDMA, by device."""

    def __init__(self, net):
        self.net = net

    def write(self, dev, name, value, port=1):
        path = (self.net / dev / 'device' / 'infiniband' / 'mlx5_0' / 'ports'
                / str(port) / name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{value}\n')

    def bond(self, dev, member):
        (self.net / dev).mkdir(exist_ok=True)
        (self.net / dev / f'lower_{member}').symlink_to(self.net / member)


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.setattr(rdma, '_NET', tmp_path)
    return Card(tmp_path)
