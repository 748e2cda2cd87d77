# SPDX-License-Identifier: Apache-2.0

"""A process that is a whole Nova, for the emulated datacentre.

``python -m virtco_lab.emulation.nova_stack --config FILE.json`` starts what
:mod:`virtco_lab.emulation.nova_cloud` describes, serves Nova's API on a real
socket and prints one line of JSON, ``{"ready": true, "url": "http://...",
"image": "..."}``. So ``openstack --os-auth-type none --os-endpoint URL server
create --nic none --image IMAGE ...`` works too. It ends on SIGTERM, SIGINT or
when its standard input, if that is a pipe, is closed. Keys of the
file:

``hosts``
    name -> slots; one compute service each. A slot is 1 vCPU and 512 MB.
``controller_url``
    of virtco-controller; null leaves filter, weigher and notifications out.
``listen``, ``port``
    address of the API (127.0.0.1, and a free port)
``flavors``
    name -> slots (``{"slot1": 1}``)
``virtco``
    other options of ``[virtco]`` in nova.conf. Its time limits are longer by
    default (PATIENCE): a whole datacentre shares this machine, and a plan
    that comes late is better there than none
``log_file``
    where Nova's log goes; null keeps none
"""

import argparse
import dataclasses
import json
import logging
import os
import signal
import stat
import sys
import threading
from typing import Any
import unittest

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

# Before all of Nova.
from virtco_lab.emulation import nova_cloud

# isort: split
from nova.tests import fixtures as nova_fixtures

PATIENCE = {'timeout_ms': 10_000, 'request_budget_ms': 30_000}


@dataclasses.dataclass(frozen=True)
class Config:
    """See the module."""

    hosts: dict[str, int]
    controller_url: str | None = None
    listen: str = '127.0.0.1'
    port: int = 0
    flavors: dict[str, int] = dataclasses.field(
        default_factory=lambda: {'slot1': 1})
    virtco: dict[str, Any] = dataclasses.field(default_factory=dict)
    log_file: str | None = None


class Stack(nova_cloud.Cloud):
    """The cloud as a "test" that runs until it is told to stop."""

    def __init__(self, config: Config, stopping: threading.Event):
        super().__init__('serve')
        self._config = config
        self._stopping = stopping
        self.hypervisors = config.hosts
        self.with_virtco = config.controller_url is not None
        self.notify_controller = self.with_virtco
        if self.with_virtco:
            self.virtco_options = {'controller_url': config.controller_url,
                                   **PATIENCE, **config.virtco}

    def serve(self) -> None:
        """Serve the API of Nova until the process is asked to end."""
        if self._config.log_file is None:
            logging.getLogger().setLevel(logging.WARNING)
        else:
            handler = logging.FileHandler(self._config.log_file)
            handler.setFormatter(logging.Formatter(
                '%(asctime)s %(levelname)s %(name)s %(message)s'))
            logging.getLogger().addHandler(handler)
        for name, slots in self._config.flavors.items():
            self.create_flavor(name, slots)
        url = self.serve_api(self._config.listen, self._config.port)
        print(json.dumps({
            'ready': True, 'url': url,
            'image': nova_fixtures.GlanceFixture.image1['id']}), flush=True)
        self._stopping.wait()


def _stop_with_parent(stopping: threading.Event) -> None:
    """Stop when a pipe on standard input is closed."""
    if not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        return

    def read() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stopping.set()

    threading.Thread(target=read, daemon=True).start()


def main(argv: list[str] | None = None) -> int:
    """Run the stack that a file in JSON describes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--config', required=True, metavar='FILE.json')
    path = parser.parse_args(argv).config
    try:
        with open(path, encoding='utf-8') as file:
            config = Config(**json.load(file))
    except (OSError, ValueError, TypeError) as error:
        parser.error(f'{path}: {error}')
    if not config.hosts:
        parser.error(f'{path}: hosts: at least one is needed')
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_args: stopping.set())
    _stop_with_parent(stopping)
    result = unittest.TestResult()
    Stack(config, stopping).run(result)
    for _case, text in result.errors + result.failures:
        print(text, file=sys.stderr)
    sys.stderr.flush()
    # Nova's worker threads may still wait for something; all is cleaned up.
    os._exit(0 if result.wasSuccessful() else 1)


if __name__ == '__main__':
    sys.exit(main())
