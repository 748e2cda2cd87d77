# SPDX-License-Identifier: Apache-2.0

"""What is lost when agent and helper of an edge module are killed.

``python -m benchmarks.restart [--times 50]`` (root) kills the agent with its
helper, and each second time the helper alone, under 18 paced TCP transfers and
a stream of numbered datagrams; another policy waits for each new agent. It
prints the datagrams that never arrived, the packets that classes and devices
dropped, and the segments that were sent again, which should be none each.
"""

import argparse
import json
import pathlib
import tempfile

from tests.netns.edge import restarts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--times', type=int, default=50)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        site = restarts.Site(pathlib.Path(directory))
        try:
            found = site.run(arguments.times)
        finally:
            site.close()
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f'{name.replace("_", " "):22} {value:>8}')


if __name__ == '__main__':
    main()
