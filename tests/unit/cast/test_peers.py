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

import hypothesis
from hypothesis import strategies as st

from virtco.cast import peers

_CLUSTERS = st.lists(st.sampled_from([None, 'a', 'b', 'c']), min_size=1,
                     max_size=40)


def _members(clusters):
    return [peers.Member(f'v{place}', cluster)
            for place, cluster in enumerate(clusters)]


def _reached(links, start):
    found, todo = {start}, [start]
    while todo:
        for other in links[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


@hypothesis.given(_CLUSTERS, st.integers(0, 39), st.integers(0, 9))
def test_everybody_is_reached_and_links_are_symmetric(clusters, source, seed):
    members = _members(clusters)
    source = members[source % len(members)].name
    links = peers.neighbours(source, members, seed)
    assert links == peers.neighbours(source, members, seed)
    assert _reached(links, source) == {member.name for member in members}
    for name, others in links.items():
        assert name not in others
        assert all(name in links[other] for other in others)


@hypothesis.given(_CLUSTERS)
def test_few_reach_out_of_their_cluster(clusters):
    members = _members(clusters)
    cluster = {member.name: member.cluster for member in members}
    links = peers.neighbours('v0', members, 1)
    for away in set(clusters) - {clusters[0]}:
        gates = [name for name in links if cluster[name] == away
                 and any(cluster[other] == clusters[0]
                         for other in links[name])]
        assert len(gates) <= peers.GATES


def test_a_newcomer_changes_nobody_elses_links_in_one_swarm():
    members = _members([None] * 30)
    before = peers.neighbours('v0', members[:-1], 3)
    after = peers.neighbours('v0', members, 3)
    for name, others in before.items():
        assert after[name] - {'v29'} == others
