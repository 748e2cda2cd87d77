# SPDX-License-Identifier: Apache-2.0

"""Frames hold whatever pieces they arrive in, and are bounded."""

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.wire import frames


@hypothesis.given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_payloads_come_out_as_they_went_in(payloads, data):
    stream = b''.join(map(frames.frame, payloads))
    reader, found = frames.Reader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == payloads


@hypothesis.given(st.lists(st.binary(max_size=30), min_size=1, max_size=9),
                  st.data())
def test_payloads_that_nobody_took_come_later(payloads, data):
    reader, found = frames.Reader(), []
    for payload in payloads:
        fed = reader.feed(frames.frame(payload))
        for _ in range(data.draw(st.integers(0, 2))):
            found += [one for one in [next(fed, None)] if one is not None]
        del fed
    assert found == payloads[:len(found)]
    assert reader.is_empty() is (found == payloads)
    assert found + list(reader.feed(b'')) == payloads


def test_a_frame_above_the_limit_is_refused_by_its_length_alone():
    reader = frames.Reader(most_bytes=10)
    assert list(reader.feed(frames.frame(b'x' * 10))) == [b'x' * 10]
    with pytest.raises(exception.Invalid, match='at most 10 bytes, got 11'):
        list(reader.feed((11).to_bytes(4, 'big')))


def test_the_limit_unless_another_one_is_said():
    limit = 256 * 1024
    assert list(frames.Reader().feed(limit.to_bytes(4, 'big'))) == []
    with pytest.raises(exception.Invalid):
        list(frames.Reader().feed((limit + 1).to_bytes(4, 'big')))


def test_the_protocol_has_the_number_that_edge_modules_know():
    assert frames.VERSION == 1


@hypothesis.given(st.text('ab.-:@_', min_size=1, max_size=255),
                  st.binary(max_size=50))
def test_an_envelope_holds_a_host_and_a_payload(host, payload):
    (found,) = frames.Reader().feed(frames.enveloped(host, payload))
    assert frames.is_enveloped(found)
    assert frames.opened(found) == (host, payload)


@pytest.mark.parametrize('payload', [
    b'\0', b'\0\0', b'\0\0{}', b'\0\x03h1', b'\0\x02\xff1{}'])
def test_a_broken_envelope_is_refused(payload):
    assert frames.is_enveloped(payload)
    with pytest.raises(exception.Invalid, match='envelope.*name of a host'):
        frames.opened(payload)


def test_a_broken_envelope_is_shown_in_part():
    with pytest.raises(exception.Invalid) as caught:
        frames.opened(b'\0\xff' + b'x' * 50)
    assert caught.value.kwargs['value'] == repr(b'\0\xff' + b'x' * 38)


@pytest.mark.parametrize('payload', [b'', b'{}', b'0'])
def test_json_is_no_envelope(payload):
    assert not frames.is_enveloped(payload)


def test_a_reader_knows_where_a_frame_begins():
    reader = frames.Reader()
    assert reader.is_empty()
    assert list(reader.feed(frames.frame(b'x')[:4])) == []
    assert not reader.is_empty()
    assert list(reader.feed(b'x')) == [b'x']
    assert reader.is_empty()


def test_the_limit_of_a_reader_may_grow():
    reader = frames.Reader(most_bytes=1)
    reader.most_bytes += 1
    assert list(reader.feed(frames.frame(b'xx'))) == [b'xx']
    with pytest.raises(exception.Invalid):
        list(reader.feed(frames.frame(b'xxx')))
