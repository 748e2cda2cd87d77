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

"""What an edge may say, as schemas."""

from typing import Any

from virtco.api import media
from virtco.api.schemas import common
from virtco.api.schemas import host as host_schema
from virtco.distribute import deltas

_NOTHING: dict[str, Any] = {'not': {}}
_VERSION = {'type': 'integer', 'minimum': 1, 'maximum': 1000}
_REPORTED = host_schema.REPORT['properties']


def _rows(row: dict[str, Any], n_keys: int, most: int) -> dict[str, Any]:
    return common.body({
        'set': common.listed(row, most),
        'gone': common.listed({
            'type': 'array', 'minItems': n_keys, 'maxItems': n_keys,
            'items': {'type': ['string', 'integer', 'null']}}, most),
    }, required=[])


#: The schema of each type of message; more fields do no harm.
SCHEMAS = {kind: common.body(properties | {'type': {'const': kind}},
                             required=required, extra=True)
           for kind, properties, required in (
    ('hello', {
        'versions': {'type': 'array', 'items': _VERSION, 'minItems': 2,
                     'maxItems': 2},
        'host': common.HOST, 'epoch': common.GENERATION,
        'generation': common.GENERATION}, ['versions', 'host']),
    ('ack', {'epoch': common.GENERATION, 'generation': common.GENERATION},
     ['generation']),
    ('report', {'report': host_schema.REPORT}, ['report']),
    ('delta', {
        'set': common.body(_REPORTED | dict.fromkeys(deltas.KEYS, _NOTHING),
                           required=[], extra=True),
        'rows': common.body({
            'coflows': _rows(host_schema.COFLOW, 1, 10_000),
            'pairs': _rows(host_schema.PAIR, 4, 100_000)}, required=[])},
     []),
    ('heartbeat', {}, []),
    ('measurement', {'measurement': host_schema.MEASUREMENT},
     ['measurement']))}


_CHECKERS = {kind: media.checker(schema) for kind, schema in SCHEMAS.items()}


def check(message: dict[str, Any]) -> None:
    """:raises virtco.exception.Invalid: naming field, value and limit."""
    _CHECKERS[message['type']](message)
