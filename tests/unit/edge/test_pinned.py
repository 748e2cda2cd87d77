# SPDX-License-Identifier: Apache-2.0

"""Answers of libbpf, and counters of several processors."""

import ctypes
import errno

import pytest

from edge_module.classify import bpf_maps
from edge_module.privileged import pinned


def test_an_answer_below_zero_is_an_error():
    assert pinned._checked(0, 'pin it') == 0
    assert pinned._checked(7, 'open it') == 7
    ctypes.set_errno(errno.ENOSPC)
    with pytest.raises(OSError, match='pin it: No space left') as found:
        pinned._checked(-1, 'pin it')
    assert found.value.errno == errno.ENOSPC


def test_processors_count_together():
    values = b''.join(bpf_maps.FLOW.pack(0x70000011, 0, sent_bytes, packets)
                      for sent_bytes, packets in ((100, 1), (0, 0), (250, 3)))
    assert pinned.sums(values) == (0x70000011, 350, 4)
