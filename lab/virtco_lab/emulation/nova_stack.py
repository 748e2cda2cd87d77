# SPDX-License-Identifier: Apache-2.0

"""A process that is a whole Nova, for the emulated datacentre.

It reads its :class:`Config` as one JSON line, starts what
:mod:`virtco_lab.emulation.nova_cloud` describes, and prints the address of
Nova's API as one line, ``{"url": "http://..."}``. It ends when its standard
input does.
"""

import dataclasses
import json
import logging
import os
import sys
import unittest

import msgspec

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

# Before all of Nova.
from virtco_lab.emulation import nova_cloud

#: A whole datacentre shares this machine, and a plan that comes late is better
#: there than none.
PATIENCE = {'timeout_ms': 10_000, 'request_budget_ms': 30_000}


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a stack.

    :ivar hosts: slots of each hypervisor, by its name.
    :ivar listen: address of the API, which gets a free port.
    :ivar flavors: slots of each flavor, by its name.
    """

    hosts: dict[str, int]
    controller_url: str
    listen: str
    flavors: dict[str, int]
    log_file: str


class Stack(nova_cloud.Cloud):
    """The cloud as a "test" that runs until its standard input ends."""

    notify_controller = True

    def __init__(self, config: Config):
        super().__init__('serve')
        self._config = config
        self.hypervisors = config.hosts
        self.virtco_options = {'controller_url': config.controller_url,
                               **PATIENCE}

    def serve(self) -> None:
        """Serve the API of Nova until standard input ends."""
        handler = logging.FileHandler(self._config.log_file)
        handler.setFormatter(logging.Formatter(
            '%(asctime)s %(levelname)s %(name)s %(message)s'))
        logging.getLogger().addHandler(handler)
        for name, slots in self._config.flavors.items():
            self.create_flavor(name, slots)
        print(json.dumps({'url': self.serve_api(self._config.listen)}),
              flush=True)
        sys.stdin.read()


def main() -> None:
    """Run the stack that standard input describes."""
    config = msgspec.json.decode(sys.stdin.readline(), type=Config)
    result = unittest.TestResult()
    Stack(config).run(result)
    for _case, text in result.errors + result.failures:
        print(text, file=sys.stderr)
    sys.stderr.flush()
    # Nova's worker threads may still wait for something; all is cleaned up.
    os._exit(0 if result.wasSuccessful() else 1)


if __name__ == '__main__':
    main()
