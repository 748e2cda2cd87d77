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

"""Bodies of advice for a group."""

from virtco.advise import estimates
from virtco.api.schemas import common

MOST_BYTES = 10 ** 15

MAPPING = common.body({
    'tm': common.MATRIX,
    'all_reduce_bytes': {'type': 'number', 'minimum': 1,
                         'maximum': MOST_BYTES},
    'matrix': {'enum': [str(basis) for basis in estimates.Basis]}},
    required=[])
