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
    assert learned.n_vms == 16 and learned.tm['pattern'] == spec['pattern']
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
    assert found.n_launches == 2


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
            assert coflow.n_vms == learned.n_vms == wanted
