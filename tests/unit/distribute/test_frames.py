# SPDX-License-Identifier: Apache-2.0

"""Frames hold whatever pieces they arrive in, and are bounded."""

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.distribute import frames


@hypothesis.given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_payloads_come_out_as_they_went_in(payloads, data):
    stream = b''.join(map(frames.frame, payloads))
    reader, found = frames.Reader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == payloads


def test_a_frame_above_the_limit_is_refused_by_its_length_alone():
    reader = frames.Reader(most_bytes=10)
    assert list(reader.feed(frames.frame(b'x' * 10))) == [b'x' * 10]
    with pytest.raises(exception.Invalid, match='11 bytes.*at most 10'):
        list(reader.feed((11).to_bytes(4, 'big')))


@pytest.mark.parametrize('payload', [
    b'', b'{', b'7', b'[]', b'{"type": 1}', b'{"kind": "hello"}', b'\xff',
    b'[' * 100_000])
def test_what_is_no_message_is_refused(payload):
    with pytest.raises(exception.Invalid):
        frames.unpack(payload)


def test_nesting_is_bounded():
    def nested(levels):
        text = '[' * (levels - 1) + ']' * (levels - 1)
        return b'{"type": "report", "report": %s}' % text.encode()

    assert frames.unpack(nested(64))['type'] == 'report'
    with pytest.raises(exception.Invalid, match='at most 64 levels'):
        frames.unpack(nested(65))


def test_a_packed_message_is_one_frame():
    (payload,) = frames.Reader().feed(frames.pack('ack', generation=7))
    assert frames.unpack(payload) == {'type': 'ack', 'generation': 7}
