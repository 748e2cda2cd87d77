# SPDX-License-Identifier: Apache-2.0

"""Requests that the OpenAPI document allows, and those that it forbids.

No answer is a server error, whatever came: tenants are not trusted. Each is
of the type that its operation declares.
"""

import collections
import copy
import itertools
import math
import os
import secrets
import time

import hypothesis
from hypothesis.internal.conjecture import providers
import pytest
import requests
import schemathesis
from schemathesis import GenerationMode

from tests import answers
from tests.functional.controller import harness
from virtco.api import openapi
from virtco.api import pace

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
# By default each operation once in both modes: 110 rounds.
N_REQUESTS = int(os.environ.get('VIRTCO_FUZZ_REQUESTS')
                 or (100_000 if FULL else 220))
BATCH = 250 if FULL else 4
#: CI asks the same each time; a full run asks what none has asked, unless it
#: is to do an older one again.
SEED = int(os.environ.get('VIRTCO_FUZZ_SEED')
           or (secrets.randbelow(2 ** 31) if FULL else 0))
TOLD_EVERY = 5000
#: What is asked of the planner takes its whole budget.
MOST_BUDGET_S = 0.01


def _document():
    found = copy.deepcopy(openapi.document({}))
    for schema in _schemas(found):
        budget = schema.get('properties', {}).get('budget_s')
        if isinstance(budget, dict) and 'maximum' in budget:
            budget['maximum'] = MOST_BUDGET_S
    return found


def _schemas(node):
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from _schemas(value)


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # Hardly a request would be read otherwise.
        patch.setattr(pace, 'BURST_CPU_S', math.inf)
        with harness.running(tmp_path_factory.mktemp('fuzzing')) as found:
            yield found


@pytest.fixture(scope='module')
def known(controller):
    """Values of path parameters that exist."""
    tenant = controller.tenant()
    hosts = tenant.launch(4)
    tenant.edges(hosts)
    return {'instance_uuid': tenant.instance(0), 'host': tenant.host(hosts[0]),
            'coflow_id': tenant.coflow()['id'],
            'project_id': tenant.project, 'plane': 'default',
            'name': 'application', 'kind': 'rate', 'check_id': 'none',
            'probe_id': 'none', 'group': 'none'}


class Tally:
    def __init__(self):
        self.statuses = collections.Counter()
        self.wrong = []
        self.slowest_s = 0.0
        self.slowest = ''

    def send(self, session, url, case):
        begin_s = time.monotonic()
        response = case.call(base_url=url, session=session, timeout=60)
        took_s = time.monotonic() - begin_s
        self.statuses[response.status_code] += 1
        if took_s > self.slowest_s:
            self.slowest_s = took_s
            self.slowest = f'{case.method} {case.formatted_path}'
        if response.status_code >= 500:
            self.wrong.append((case.as_curl_command(), response.text[:500]))
            print(*self.wrong[-1], flush=True)
        else:
            answers.check(case.method, case.formatted_path,
                          response.status_code, response.content)
        if self.n_requests() % TOLD_EVERY == 0:
            self.tell()

    def n_requests(self):
        return sum(self.statuses.values())

    def tell(self):
        print(f'{self.n_requests()} requests of seed {SEED}:',
              dict(sorted(self.statuses.items())),
              f'slowest {self.slowest_s:.2f} s: {self.slowest}', flush=True)


@pytest.fixture
def constants(monkeypatch):
    """Hypothesis draws values from the source of whatever is loaded, and what
    is loaded depends on the tests before: CI does without.
    """
    if not FULL:
        monkeypatch.setattr(providers, '_get_local_constants',
                            lambda: providers.GLOBAL_CONSTANTS)
        monkeypatch.setattr(providers, 'CONSTANTS_CACHE', {})


@pytest.mark.timeout(6 * 3600)
def test_no_request_is_a_server_error(controller, known, constants):
    document = schemathesis.openapi.from_dict(_document())
    operations = [found.ok() for found in document.get_all_operations()]
    tally, session = Tally(), requests.Session()
    session.trust_env = False
    rounds = itertools.cycle(itertools.product(
        (GenerationMode.NEGATIVE, GenerationMode.POSITIVE), operations))
    number = SEED
    while tally.n_requests() < N_REQUESTS:
        mode, operation = next(rounds)
        number += 1
        _fuzz(operation, mode, number, known, lambda case: tally.send(
            session, controller.url, case))
    tally.tell()
    assert tally.wrong == []
    # Both sorts reached what they were made for.
    assert tally.statuses[200] > 0 and tally.statuses[400] > 0
    assert tally.statuses[429] == 0
    assert controller.process.poll() is None
    assert 'Traceback' not in controller.log_text()


def _fuzz(operation, mode, number, known, send):
    """Some requests of one operation; half of those by a path name what is
    there.
    """
    names = {parameter.name for parameter in operation.path_parameters}
    given = ({name: known[name] for name in names}
             if names and number % 2 else None)
    try:
        cases = operation.as_strategy(generation_mode=mode,
                                      path_parameters=given)

        @hypothesis.seed(number)
        @hypothesis.settings(
            max_examples=BATCH, database=None, deadline=None,
            derandomize=False, phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(cases)
        def run(case):
            send(case)

        run()
    except hypothesis.errors.Unsatisfiable:
        pass  # Nothing of such an operation can be wrong.


@pytest.mark.parametrize('body', [
    b'[' * 100_000, b'{"hints":' * 65 + b'1' + b'}' * 65, b'\xff\xfe{',
    b'{"a": 1e999}', b'"' + b'x' * 1_000_000 + b'"', b'{"a": NaN}', b'\x00',
    b'{"hosts": null}', b'', b'5\xf9', b'5 no JSON',
    b'[' + b'1' * 5000 + b']'], ids=range(12))
@pytest.mark.parametrize(('method', 'path'), [
    ('PUT', '/v1/placements/9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d'),
    ('POST', '/v1/plans'), ('POST', '/v1/coflows'),
    ('POST', '/v1/notifications'), ('PUT', '/v1/topology')])
def test_a_body_that_is_none_is_refused_in_one_line(controller, method, path,
                                                    body):
    response = requests.request(
        method, controller.url + path, data=body, timeout=60,
        headers={'Content-Type': 'application/json'})
    assert 400 <= response.status_code < 500, response.text
    error = response.json()['error']
    assert error['code'] and '\n' not in error['detail']
