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


import itertools

import pytest

from virtco.measure import bottleneck

Level = bottleneck.Level
Model = bottleneck.Model

# Two subtrees of two racks of two hosts.
PLACES = {f's{s}r{r}h{h}': bottleneck.Place(f's{s}r{r}h{h}', f's{s}r{r}',
                                            f's{s}')
          for s in '01' for r in '01' for h in '01'}


def _path(src, dst):
    return bottleneck.Path(PLACES[src], PLACES[dst])


@pytest.mark.parametrize('one, other, levels', [
    (('s0r0h0', 's0r1h1'), ('s0r0h0', 's0r1h0'),
     {Level.SOURCE, Level.RACK}),
    (('s0r0h0', 's1r0h1'), ('s0r0h0', 's1r0h0'), set(Level)),
    # One stays in its rack, or in its subtree: only the source is shared.
    (('s0r0h0', 's0r0h1'), ('s0r0h0', 's1r0h0'), {Level.SOURCE}),
    (('s0r0h0', 's0r1h0'), ('s0r0h0', 's1r0h0'),
     {Level.SOURCE, Level.RACK}),
    (('s0r0h0', 's1r0h0'), ('s0r0h1', 's1r1h0'),
     {Level.RACK, Level.SUBTREE}),
    (('s0r0h0', 's0r1h0'), ('s0r0h1', 's0r1h1'), {Level.RACK}),
    (('s0r0h0', 's0r0h1'), ('s0r0h1', 's1r1h0'), set()),
    (('s0r0h0', 's1r0h0'), ('s0r1h0', 's1r1h0'), {Level.SUBTREE}),
    (('s0r0h0', 's0r1h0'), ('s0r1h0', 's1r1h0'), set()),
    (('s0r0h0', 's1r0h0'), ('s1r0h1', 's0r0h1'), set()),
])
def test_the_two_rules(one, other, levels):
    found = {level for level in Level
             if bottleneck.may_interfere(_path(*one), _path(*other), level)}
    assert found == levels
    assert found == {level for level in Level if bottleneck.may_interfere(
        _path(*other), _path(*one), level)}


@pytest.mark.parametrize('level', Level)
def test_the_level_is_found_from_what_interferes(level):
    paths = [_path(a, b) for a, b in itertools.permutations(PLACES, 2)]
    seen = [(one, other, bottleneck.may_interfere(one, other, level))
            for one, other in itertools.combinations(paths, 2)]
    assert bottleneck.narrowest_level(seen) is level


def test_no_level_explains_nothing_or_nonsense():
    assert bottleneck.narrowest_level([]) is None
    path, same_source = _path('s0r0h0', 's1r0h0'), _path('s0r0h0', 's1r1h0')
    assert bottleneck.narrowest_level([(path, same_source, False)]) is None


@pytest.mark.parametrize('alone, together, model', [
    ([1e9, 1e9, 9e8], [3.4e8, 3.3e8, 3.3e8], Model.HOSE),
    ([1e9, 1e9], [9.8e8, 1e9], Model.PIPE),
    ([1e9, 1e9], [7e8, 7e8], Model.UNKNOWN),
    ([1e9], [1e9], Model.UNKNOWN),
    ([1e9, 1e9], [1e9], Model.UNKNOWN),
])
def test_hose_or_pipe(alone, together, model):
    assert bottleneck.source_model(alone, together) is model
