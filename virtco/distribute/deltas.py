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

"""What changed between two reports of an edge module. Pure.

A delta has ``set``, the fields of the report that changed, and for the lists
in :data:`KEYS` ``rows``: ``{"coflows": {"set": [row, …], "gone": [key, …]}}``.
Rows keep no order.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from virtco import exception
from virtco import units

#: What tells the rows of a list apart.
KEYS: dict[str, tuple[str, ...]] = {
    'coflows': ('coflow_id',),
    'pairs': ('dev', 'src_ip', 'dst_ip', 'dst_port'),
}
#: Fields that no decision waits for: they go with the next heartbeat.
SLOW = frozenset({'cpu_s', 'shared', 'uplink_sent_bytes',
                  'default_sent_bytes'})
#: Unless more than this share of the link went by meanwhile.
MATTERS = 0.01

Report = dict[str, Any]
Delta = dict[str, Any]
_Key = tuple[Any, ...]


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Delta:
    """What makes ``after`` of ``before``; empty when nothing changed."""
    changed = {name: value for name, value in after.items()
               if name not in KEYS
               and (name not in before or before[name] != value)}
    rows = {name: found for name in KEYS if name in after
            and (found := _diff_rows(name, before.get(name, ()),
                                     after[name]))}
    return (({'set': changed} if changed else {})
            | ({'rows': rows} if rows else {}))


def _diff_rows(name: str, before: Iterable[Mapping[str, Any]],
               after: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    if before is after:
        return {}
    old, new = _by_key(name, before), _by_key(name, after)
    changed = [row for key, row in new.items() if old.get(key) != row]
    gone = [list(key) for key in old.keys() - new.keys()]
    return (({'set': changed} if changed else {})
            | ({'gone': gone} if gone else {}))


def _by_key(name: str, rows: Iterable[Mapping[str, Any]]
            ) -> dict[_Key, Mapping[str, Any]]:
    fields = KEYS[name]
    return {tuple(row.get(field) for field in fields): row for row in rows}


def patch(before: Report, delta: Mapping[str, Any]) -> Report:
    """The report after ``before``, which stays as it is.

    :param delta: of the form that the schema of deltas demands.
    :raises virtco.exception.Invalid: for a row that is not there.
    """
    after = {**before, **delta.get('set', {})}
    for name, found in delta.get('rows', {}).items():
        rows = _by_key(name, before.get(name, ()))
        for key in found.get('gone', ()):
            if rows.pop(tuple(key), None) is None:
                raise exception.Invalid(field=f'rows.{name}.gone', value=key,
                                        limit='a row of the report before')
        rows.update(_by_key(name, found.get('set', ())))
        after[name] = list(rows.values())
    return after


def is_urgent(before: Mapping[str, Any], delta: Mapping[str, Any],
              elapsed_s: float) -> bool:
    """Whether the controller is to hear of it before the next heartbeat."""
    if 'rows' in delta:
        return True
    changed = delta.get('set', {})
    if changed.keys() - SLOW:
        return True
    sent_bytes = (changed.get('uplink_sent_bytes', 0)
                  - before.get('uplink_sent_bytes', 0))
    link_bps = (before.get('link') or {}).get('egress_bps') or 0
    matters_bytes = (MATTERS * units.bps_to_bytes_per_s(link_bps)
                     * elapsed_s)
    return ('uplink_sent_bytes' in changed
            and abs(sent_bytes) > matters_bytes)
