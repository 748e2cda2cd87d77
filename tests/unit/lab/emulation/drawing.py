# SPDX-License-Identifier: Apache-2.0

"""Figures of a made-up network, compared with files of what they were.

A figure that was measured cannot be measured again to the same numbers, but
what it makes of the same measurements stays the same. To accept a change,
delete the figure's file below drawn/: the test writes it anew, and fails once.
"""

import dataclasses
import json
import pathlib

import numpy as np

MANY = 24
DRAWN = pathlib.Path(__file__).with_name('drawn')


class Display:
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def _plain(value):
    """Numbers to six digits, as libraries round differently; of many the sum
    and that of each times its place.
    """
    if isinstance(value, list | tuple) and len(value) > MANY and all(
            isinstance(one, float | int) for one in value):
        value = [f'{len(value)} numbers', float(sum(value)), float(sum(
            place * one for place, one in enumerate(value)))]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(f'{value:.6g}')
    return int(value) if isinstance(value, np.integer) else value


def check(name, outcome, said=()):
    """:param outcome: a data class or a dictionary."""
    path = DRAWN / f'{name}.json'
    parts = outcome if isinstance(outcome, dict) else {
        name: value for name, value in dataclasses.asdict(outcome).items()
        if name != 'runs'}
    now = json.loads(json.dumps(_plain({**parts, 'said': list(said)})))
    if not path.exists():
        lines = ',\n'.join(
            f' {json.dumps(part)}: {json.dumps(value, ensure_ascii=False)}'
            for part, value in now.items())
        path.write_text(f'{{\n{lines}\n}}\n', encoding='utf-8')
        raise AssertionError(f'{path} was missing and is written')
    was = json.loads(path.read_text(encoding='utf-8'))
    for part, value in was.items():
        assert now[part] == value, part
    assert now.keys() == was.keys()
