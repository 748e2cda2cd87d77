# SPDX-License-Identifier: Apache-2.0

"""A running controller tells those who watch its page, without a thread
each.
"""

import contextlib
import pathlib
import re

import requests

from tests.functional.controller import harness
from tests.functional.controller import test_policies as policies

#: More than the controller may have threads.
N_VIEWERS = 20


def n_threads(controller):
    text = pathlib.Path(f'/proc/{controller.process.pid}/status').read_text()
    return int(re.search(r'Threads:\s*(\d+)', text).group(1))


def read_event(lines):
    return next(line for line in lines if line.startswith(b'event:'))


def test_many_watch_with_few_threads(make):
    controller = make({'api': {'ui': True, 'threads': 4}})
    tenant = controller.tenant()
    _hosts, edges = policies.one_pair(tenant)
    before = n_threads(controller)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(requests.get(
            f'{controller.url}/ui/events', stream=True,
            timeout=harness.DEADLINE_S)).iter_lines(chunk_size=1)
            for _ in range(N_VIEWERS)]
        for stream in streams:
            assert read_event(stream) == b'event: changed'
        # Requests are answered beside them.
        assert len(tenant.coflows()) == 1
        assert n_threads(controller) <= before + 2
        next(iter(edges.values())).report()
        for stream in streams:
            assert read_event(stream) == b'event: changed'
    harness.wait_for(lambda: n_threads(controller) <= before + 1,
                     'the end of the thread that tells viewers')
    assert 'ERROR' not in controller.log_text()
