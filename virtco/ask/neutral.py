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

"""The answer that leaves Nova's own order as it is. Pure."""

from collections.abc import Iterable
from typing import Any


def answer(instance_uuid: str, hosts: Iterable[str], why: str,
           status: str = 'neutral', slow_phase: str | None = None
           ) -> dict[str, Any]:
    """An answer without an opinion: Nova's own order stands.

    :param slow_phase: what took most of the time, when it ran out.
    """
    return {'instance_uuid': instance_uuid, 'status': status,
            'host': None, 'why': why, 'group': None,
            'hosts': [{'host': host, 'rank': i, 'feasible': True,
                       'cct_s': None, 'objective_s': None, 'why': why}
                      for i, host in enumerate(hosts)],
            'cct_s': None, 'lower_bound_s': None, 'gap': None,
            'method': None, 'slow_phase': slow_phase}
