# SPDX-License-Identifier: Apache-2.0

"""What the next launch of an application gets."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco import hint_matrix
from virtco.profiles import learning
from virtco.profiles import pairs


def launch(**spec):
    (coflow,) = hint_matrix.parse_matrix(spec, 'x')
    return learning.Launch(coflow.n_vms, {
        (flow.src, flow.dst): flow.size_bytes for flow in coflow.flows})


def flows_of(learned):
    (coflow,) = hint_matrix.parse_matrix(learned.tm, 'x')
    return {(flow.src, flow.dst): flow.size_bytes for flow in coflow.flows}


PATTERNS = [
    {'pattern': 'shuffle', 'senders': 3, 'receivers': 5, 'size': '1GB'},
    {'pattern': 'shuffle', 'senders': 5, 'receivers': 2, 'size': '1GB'},
    {'pattern': 'gather', 'senders': 6, 'size': '1GB'},
    {'pattern': 'broadcast', 'receivers': 4, 'size': '1GB'},
    {'pattern': 'ring', 'n': 5, 'size': '1GB'},
    {'pattern': 'all-to-all', 'n': 4, 'size': '1GB'}]


@pytest.mark.parametrize('spec', PATTERNS)
def test_patterns_are_recognised_and_scaled(spec):
    found = launch(**spec)
    pattern = learning.recognise(found)
    assert pattern.spec == {key: value for key, value in spec.items()
                            if key != 'size'}
    learned = learning.learn([found], 16)
    assert learned.tm['pattern'] == spec['pattern']
    sizes = flows_of(learned)
    each = set(round(size, -3) for size in sizes.values())
    assert len(each) == 1
    if spec['pattern'] in learning.KEEP_FLOW_SIZE:
        assert each.pop() == pytest.approx(pattern.flow_bytes, rel=1e-3)
    else:
        assert learned.size_bytes == pytest.approx(1e9)


@given(st.sampled_from(PATTERNS), st.data())
def test_noise_and_pairs_that_nobody_saw_change_nothing(spec, data):
    clean = launch(**spec)
    rng = data.draw(st.randoms(use_true_random=False))
    sent = {pair: size * rng.uniform(0.8, 1.25)
            for pair, size in clean.sent.items()}
    for pair in data.draw(st.sets(st.sampled_from(sorted(sent)),
                                  max_size=len(sent) // 3)):
        sent[pair] = pairs.UNSEEN
    for _ in range(3):  # keep-alives
        sent.setdefault((rng.randrange(clean.n_vms),
                         rng.randrange(clean.n_vms)), 1000.0)
    sent = {pair: size for pair, size in sent.items() if pair[0] != pair[1]}
    pattern = learning.recognise(learning.Launch(clean.n_vms, sent))
    assert pattern is not None and pattern.name == spec['pattern']
    assert flows_of(learning.learn(
        [learning.Launch(clean.n_vms, sent)], clean.n_vms)
    ).keys() >= clean.sent.keys()


def test_launches_of_one_size_give_their_mean():
    found = learning.learn([learning.Launch(3, {(0, 1): 100.0, (1, 2): 10.0}),
                            learning.Launch(3, {(0, 1): 300.0}),
                            learning.Launch(2, {(0, 1): 9.0})], 3)
    assert flows_of(found) == {(0, 1): 200, (1, 2): 10}
    assert found.how == 'mean of 2 launches with 3 VMs'


def test_the_growth_that_was_seen_goes_before_the_usual():
    seen = [learning.Launch(n, launch(pattern='all-to-all', n=n,
                                      size=n * 1e8).sent) for n in (4, 8)]
    learned = learning.learn(seen, 16)
    assert learned.size_bytes == pytest.approx(1.6e9, rel=1e-3)
    assert 'as seen' in learned.how


@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)),
                       st.floats(1, 1e15) | st.just(pairs.UNSEEN)),
       st.integers(2, 40))
def test_anything_gives_a_valid_matrix_or_none(sent, n_vms):
    sent = {pair: size for pair, size in sent.items() if pair[0] != pair[1]}
    for wanted in (6, n_vms):
        learned = learning.learn([learning.Launch(6, sent)], wanted)
        if learned is not None:
            (coflow,) = hint_matrix.parse_matrix(learned.tm, 'x')
            assert coflow.n_vms == wanted


def test_what_counts_of_the_past_is_what_the_documents_say():
    assert (learning.MOST_LAUNCHES, learning.NOISE_FRACTION,
            learning.MOST_SPREAD, learning.MOST_EXPONENT) == (
                5, 0.02, 0.5, 2.0)


def test_of_many_launches_the_latest_count():
    seen = [learning.Launch(2, {(0, 1): size})
            for size in (60.0, 50.0, 40.0, 30.0, 20.0, 1e9)]
    found = learning.learn(seen, 2)
    assert flows_of(found) == {(0, 1): 40}
    assert found.size_bytes == 40.0
    assert found.how.startswith('mean of 5 launches with 2 VMs, broadcast')


def test_launches_that_sent_nothing_do_not_count():
    silent = learning.Launch(3, {(0, 1): pairs.UNSEEN, (1, 2): 0.0})
    assert silent.size_bytes == 0
    assert learning.learn([silent], 3) is None
    assert learning.learn([silent], 5) is None
    told = learning.Launch(3, {(0, 1): 30.0, (2, 1): 10.0})
    found = learning.learn([silent, told], 3)
    assert flows_of(found) == {(0, 1): 30, (2, 1): 10}
    assert found.how.startswith('mean of 1 launches')
    assert found.size_bytes == 40
    # What rounds to nothing is no flow.
    assert learning.learn([learning.Launch(3, {(0, 1): 0.4})], 3) is None


def test_what_nobody_saw_is_as_large_as_the_others_of_a_pattern():
    """A gather; rows 0 and 4 share a host, and so do 1 and 2."""
    found = learning.learn([learning.Launch(5, {
        (0, 4): pairs.UNSEEN, (4, 0): pairs.UNSEEN, (1, 2): pairs.UNSEEN,
        (1, 4): 90.0, (2, 4): 100.0, (3, 4): 110.0})], 5)
    assert flows_of(found) == {(0, 4): 100, (1, 4): 90, (2, 4): 100,
                               (3, 4): 110}
    assert found.how == ('mean of 1 launches with 5 VMs, '
                         'gather (4 senders)')
    # In no pattern it is left out; who saw it once knows it.
    sent = {(0, 1): 100.0, (2, 0): pairs.UNSEEN, (2, 3): 90.0}
    assert learning.recognise(learning.Launch(4, sent)) is None
    assert flows_of(learning.learn([learning.Launch(4, sent)], 4)) == {
        (0, 1): 100, (2, 3): 90}
    assert flows_of(learning.learn([
        learning.Launch(4, sent), learning.Launch(4, {(2, 0): 7.0})], 4)
    ) == {(0, 1): 100, (2, 3): 90, (2, 0): 7}


def ring(*sizes):
    return learning.Launch(len(sizes), {
        (i, (i + 1) % len(sizes)): size for i, size in enumerate(sizes)})


def test_flows_of_a_pattern_are_nearly_equal():
    """Their standard deviation is at most half of their mean."""
    assert learning.recognise(ring(50.0, 150.0, 50.0, 150.0)).name == 'ring'
    assert learning.recognise(ring(49.0, 151.0, 49.0, 151.0)) is None


def test_a_fiftieth_of_the_usual_flow_is_noise():
    """Of the larger half of the flows the median tells what is usual."""
    at_least = {**ring(100.0, 100.0, 100.0).sent, (2, 1): 2.0}
    assert learning.recognise(learning.Launch(3, at_least)) is None
    noise = at_least | {(2, 1): 1.9}
    assert learning.recognise(learning.Launch(3, noise)).name == 'ring'
    # More noise than flows leaves the pattern as it is.
    star = {(0, dst): 100.0 for dst in range(1, 4)} | {
        (dst, src): 1.5 for dst in range(1, 4) for src in (1, 2)
        if dst != src} | {(1, 3): 1.5}
    assert learning.recognise(learning.Launch(4, star)).name == 'broadcast'


def test_pairs_without_bytes_tell_nothing_of_the_usual_flow():
    star = dict.fromkeys(((src, dst) for src in range(4)
                          for dst in range(4) if src != dst), 0.0) | {
        (0, dst): 100.0 for dst in range(1, 4)} | {(1, 2): 1.5}
    assert learning.recognise(learning.Launch(4, star)).name == 'broadcast'
    assert learning.recognise(ring(0.5, 0.5, 0.5)).flow_bytes == 0.5


def test_growth_is_seen_where_launches_differ():
    """Bytes may fall with the VMs; the power of growth is from 0 to 2."""
    def of(*launches):
        return learning.learn([launch(pattern='all-to-all', n=n, size=size)
                               for n, size in launches], 16).size_bytes

    assert of((4, 4e8), (8, 8e8)) == pytest.approx(16e8, rel=1e-3)
    assert of((8, 8e8), (4, 2e8)) == pytest.approx(32e8, rel=1e-3)
    assert of((8, 8e8), (4, 1e7)) == pytest.approx(32e8, rel=1e-3)
    assert of((8, 2e8), (4, 8e8)) == pytest.approx(2e8, rel=1e-3)
    # A ring grows with what was seen, too.
    seen = [learning.Launch(n, dict.fromkeys(
        launch(pattern='ring', n=n, size=n).sent, 100.0 * n))
        for n in (4, 8)]
    assert learning.learn(seen, 16).size_bytes == pytest.approx(
        25600, rel=1e-3)


@pytest.mark.parametrize(('spec', 'n_vms', 'size_bytes', 'counts', 'how'), [
    ({'pattern': 'shuffle', 'senders': 1, 'receivers': 7, 'size': 700}, 4,
     300, {'receivers': 3}, 'the same bytes per flow'),
    ({'pattern': 'shuffle', 'senders': 2, 'receivers': 6, 'size': 1200}, 2,
     1200, {'senders': 1, 'receivers': 1}, 'the same bytes'),
    ({'pattern': 'shuffle', 'senders': 6, 'receivers': 2, 'size': 1200}, 12,
     1200, {'senders': 9, 'receivers': 3}, 'the same bytes'),
    ({'pattern': 'shuffle', 'senders': 7, 'receivers': 2, 'size': 1400}, 2,
     1400, {'senders': 1, 'receivers': 1}, 'the same bytes'),
    ({'pattern': 'shuffle', 'senders': 2, 'receivers': 98, 'size': 19600}, 3,
     19600, {'senders': 1, 'receivers': 2}, 'the same bytes'),
    ({'pattern': 'gather', 'senders': 3, 'size': 900}, 8,
     900, {'senders': 7}, 'the same bytes'),
    ({'pattern': 'broadcast', 'receivers': 3, 'size': 900}, 8,
     2100, {'receivers': 7}, 'the same bytes per flow'),
    ({'pattern': 'ring', 'n': 3, 'size': 900}, 8,
     2400, {'n': 8}, 'the same bytes per flow'),
    ({'pattern': 'all-to-all', 'n': 3, 'size': 900}, 8,
     900, {'n': 8}, 'the same bytes')])
def test_a_pattern_is_scaled(spec, n_vms, size_bytes, counts, how):
    found = learning.learn([launch(**spec)], n_vms)
    assert found.size_bytes == size_bytes == found.tm['size']
    assert {key: found.tm[key] for key in counts} == counts
    assert found.how.endswith(f'scaled to {n_vms} VMs: {how}')
    (coflow,) = hint_matrix.parse_matrix(found.tm, 'x')
    assert coflow.n_vms == n_vms
    assert coflow.size_bytes == pytest.approx(found.size_bytes)


def test_two_vms_are_a_broadcast():
    found = learning.recognise(learning.Launch(2, {(0, 1): 5.0}))
    assert (found.name, found.spec) == (
        'broadcast', {'pattern': 'broadcast', 'receivers': 1})
    assert found.size_bytes == 5.0
    # The other way it is none of them.
    assert learning.recognise(learning.Launch(2, {(1, 0): 5.0})) is None


@pytest.mark.parametrize('unseen', [(0, 3), (1, 3), (2, 3), (2, 4), (2, 5)])
@pytest.mark.parametrize('whole', [False, True])
def test_a_shuffle_is_known_though_a_sender_or_receiver_was_not_seen(
        unseen, whole):
    """Three senders: the last sender or the first receiver is missing."""
    clean = launch(pattern='shuffle', senders=3, receivers=3, size=900)
    row, column = unseen
    sent = {pair: pairs.UNSEEN if pair == unseen or whole and (
        pair[0] == row == 2 if row == 2 else pair[1] == column) else size
        for pair, size in clean.sent.items()}
    assert learning.recognise(learning.Launch(6, sent)).spec == {
        'pattern': 'shuffle', 'senders': 3, 'receivers': 3}
