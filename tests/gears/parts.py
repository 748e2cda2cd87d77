# SPDX-License-Identifier: Apache-2.0

"""Parts of a tier: files that one process collects and runs."""

from collections.abc import Iterable
from collections.abc import Sequence
import pathlib


def files_of(part: str, folders: Iterable[pathlib.Path],
             left_out: Sequence[pathlib.Path] = ()) -> list[pathlib.Path]:
    """List the test files of a part.

    Neighbours stay together, since they import the same; parts are of like
    size in bytes. Each file is in one of the parts.

    :param part: "K/N", 1 <= K <= N.
    :param left_out: files and folders that are in no part.
    :raises ValueError: not so.
    """
    number, _, count = part.partition('/')
    if not (number.isdecimal() and count.isdecimal()
            and 1 <= int(number) <= int(count)):
        raise ValueError(f'part {part}: expected K/N, K from 1 to N')
    files = sorted(file for folder in folders
                   for file in folder.rglob('test_*.py')
                   if not any(file.is_relative_to(one) for one in left_out))
    total_bytes = sum(file.stat().st_size for file in files) or 1
    found, before_bytes = [], 0
    for file in files:
        size_bytes = file.stat().st_size
        middle = (before_bytes + size_bytes / 2) / total_bytes
        if int(middle * int(count)) == int(number) - 1:
            found.append(file)
        before_bytes += size_bytes
    return found
