# SPDX-License-Identifier: Apache-2.0

"""Bytes of RDMA, which a network card sends and receives past the kernel."""

from collections.abc import Iterator
import contextlib
import os
import pathlib

_NET = pathlib.Path('/sys/class/net')
#: Counters of drivers without those that InfiniBand specifies, whose unit is
#: four bytes.
_SENT = 'port_xmit_data', ('tx_bytes', 'hw_tx_bytes_cnt', 'ip4OutOctets',
                           'ip6OutOctets')
_RECEIVED = 'port_rcv_data', ('rx_bytes', 'hw_rx_bytes_cnt', 'ip4InOctets',
                              'ip6InOctets')
_WORD_BYTES = 4


def read_bytes(dev: str, is_sent: bool) -> int:
    """Read the bytes of RDMA that a card or the members of a bond sent or
    received; 0 without RDMA.
    """
    words, names = _SENT if is_sent else _RECEIVED
    total = 0
    for member in (_NET / dev, *_within(_NET / dev, 'lower_')):
        for card in _within(member / 'device' / 'infiniband'):
            place = 1 + (_number(member / 'dev_port') or 0)
            port = card / 'ports' / str(place)
            standard = _number(port / 'counters' / words)
            total += (_WORD_BYTES * standard if standard is not None else sum(
                _number(port / 'hw_counters' / name) or 0 for name in names))
    return total


def _within(path: pathlib.Path, prefix: str = '') -> Iterator[pathlib.Path]:
    """Yield the entries of a directory; none without it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            if name.startswith(prefix):
                yield path / name


def _number(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
