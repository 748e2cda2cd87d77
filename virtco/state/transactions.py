# SPDX-License-Identifier: Apache-2.0

"""Cuts changes into short transactions. Pure.

A process that takes over must find the bytes of a counter in the counter and
in its coflow, or in neither: what counters connect is written at once.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any

import numpy as np
import scipy

from virtco.state import summary

#: Bytes of a transaction, 0.1 s of SQLite: the leader's beat and launches wait
#: for it. It may be twice as long, and longer where more is connected.
MOST_BYTES = 32 * 1024 * 1024


def cut(unsaved: summary.Unsaved, hosts: list[dict[str, Any]]
        ) -> Iterator[summary.Unsaved]:
    """Yield the changes of each transaction, the findings in the last one.

    :param hosts: the encoded rows of the hosts.
    """
    rows_bytes = [*(len(row['progress']) for row in unsaved.coflows),
                  *(len(row['report']) for row in hosts)]
    if sum(rows_bytes) <= MOST_BYTES:
        yield dataclasses.replace(unsaved, hosts=hosts)
        return
    labels = _connected(unsaved)
    number_of = (np.cumsum(np.bincount(labels, rows_bytes))
                 // MOST_BYTES)[labels].tolist()
    of_coflow = {row['id']: number for row, number
                 in zip(unsaved.coflows, number_of)}
    last = max(number_of)
    of_project = dict.fromkeys(unsaved.debts, last) | {
        project_id: of_coflow[coflow_id]
        for coflow_id, project_id in unsaved.projects.items()}
    for part in sorted(set(number_of)):
        yield dataclasses.replace(
            unsaved, coflows=[row for row in unsaved.coflows
                              if of_coflow[row['id']] == part],
            hosts=[row for row, number in zip(
                hosts, number_of[len(of_coflow):]) if number == part],
            debts={project_id: debt_bytes for project_id, debt_bytes
                   in unsaved.debts.items() if of_project[project_id] == part},
            findings=unsaved.findings if part == last else ())


def _connected(unsaved: summary.Unsaved) -> np.ndarray:
    """Return a number for each coflow and then for each host, which is the
    same for those that counters or the debt of a project connect.
    """
    number_of = {row['id']: number
                 for number, row in enumerate(unsaved.coflows)}
    pairs = [(number, number_of[coflow_id]) for number, row in enumerate(
        unsaved.hosts, len(number_of)) for coflow_id in {
            key.partition('/')[0] for key in row['report'].counters.values}
        if coflow_id in number_of]
    owing: dict[str, int] = {}
    pairs += [(number_of[coflow_id],
               owing.setdefault(project_id, number_of[coflow_id]))
              for coflow_id, project_id in unsaved.projects.items()
              if project_id in unsaved.debts]
    n_rows = len(number_of) + len(unsaved.hosts)
    links = scipy.sparse.coo_array(
        (np.ones(len(pairs)), np.array(pairs, int).reshape(-1, 2).T),
        (n_rows, n_rows))
    found: np.ndarray = scipy.sparse.csgraph.connected_components(
        links, directed=False)[1]
    return found
