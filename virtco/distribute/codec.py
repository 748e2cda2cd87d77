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

"""Policies as frames; msgspec writes dataclasses ten times as fast as json."""

import dataclasses

import msgspec

from virtco.distribute import frames
from virtco.table import edge_policy


def edge_frame(epoch: int, generation: int, document: bytes) -> bytes:
    return frames.frame(b'{"type":"policy","epoch":%d,"generation":%d,'
                        b'"policy":%s}' % (epoch, generation, document))


def policy_frame(epoch: int, policy: edge_policy.EdgePolicy) -> bytes:
    return edge_frame(epoch, policy.generation, msgspec.json.encode(policy))


@dataclasses.dataclass(frozen=True, slots=True)
class Numbered:
    """A policy of this process's own scheduler."""

    epoch: int
    policy: edge_policy.EdgePolicy

    @property
    def generation(self) -> int:
        return self.policy.generation

    def frame(self) -> bytes:
        return policy_frame(self.epoch, self.policy)
