# SPDX-License-Identifier: Apache-2.0

"""What a checkout changed, compared with what others have."""

import collections
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def _git(*args: str) -> str:
    """Run git; nothing where it fails."""
    done = subprocess.run(['git', *args], cwd=ROOT, capture_output=True,
                          text=True)
    return done.stdout.strip() if done.returncode == 0 else ''


def base() -> str:
    """Name the commit that the present state is compared with.

    VIRTCO_TEST_BASE, or the newest commit that the upstream branch has too;
    where that is all, the last commit's parent. Empty outside a repository.
    """
    if named := os.environ.get('VIRTCO_TEST_BASE'):
        return named
    for upstream in ('@{upstream}', 'origin/main', 'origin/HEAD'):
        common = _git('merge-base', 'HEAD', upstream)
        if common and common != _git('rev-parse', 'HEAD'):
            return common
    return _git('rev-parse', '--verify', '-q', 'HEAD~1')


def diff(since: str, *paths: str) -> str:
    """Tell which lines changed, without context; comments do not count."""
    return _git('diff', '-U0', '-M', '-I', r'^[ ]*(#|//)', since, '--',
                *paths) if since else ''


def files(since: str) -> list[str]:
    """List the files of which more than comments changed."""
    return sorted(line.removeprefix('+++ b/')
                  for line in diff(since).splitlines()
                  if line.startswith('+++ b/'))


def lines(text: str) -> dict[str, set[int]]:
    """List the added lines of each file in a diff without context.

    A line that the diff removes elsewhere in the same words has moved, and is
    left out.
    """
    removed = collections.Counter(
        line[1:].strip() for line in text.splitlines()
        if line.startswith('-') and not line.startswith('---'))
    found: dict[str, set[int]] = collections.defaultdict(set)
    path, number = '', 0
    for line in text.splitlines():
        if line.startswith('+++ '):
            path = line[4:].removeprefix('b/')
        elif line.startswith('@@'):
            number = int(line.split('+')[1].split()[0].split(',')[0])
        elif line.startswith('+'):
            if removed[line[1:].strip()]:
                removed[line[1:].strip()] -= 1
            else:
                found[path].add(number)
            number += 1
    return dict(found)
