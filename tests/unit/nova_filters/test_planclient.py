# SPDX-License-Identifier: Apache-2.0

"""What the client promises Nova, against a real socket."""

import gc
import json
import socket
import threading
import time

from oslo_config import cfg
import pytest

from nova_filters import controller_connection as connection
from nova_filters import planclient
from nova_filters import plugin_options as virtco_conf
from tests import patience
from tests.unit.nova_filters import scripted_controller

NO_ANSWERS = ['hang', 'drip', 'drip_body', 'close']
BAD_ANSWERS = ['endless', 'garbage', 'wrong_shape', 'deep', 'error',
               'refusal']


@pytest.fixture
def controller():
    with scripted_controller.ScriptedController() as fixture:
        yield fixture


def make_client(url, **options):
    conf = cfg.ConfigOpts()
    virtco_conf.register_opts(conf)
    conf([])
    # Patient: a busy machine is no fault of the controller.
    options = {'controller_url': url, 'timeout_ms': 20_000,
               'request_budget_ms': 60_000, **options}
    for name, value in options.items():
        conf.set_override(name, value, group='virtco')
    return planclient.get_client(conf)


def place(client, uuid, body, request_id):
    body = {'hints': {}, 'metadata': {}, 'hosts': [], **body}
    return client.place(uuid, body, request_id, time.monotonic())


@pytest.fixture
def closed_port():
    """A port that is bound without listening, so that nobody gets it."""
    with socket.socket() as refusing:
        refusing.bind(('127.0.0.1', 0))
        yield refusing.getsockname()[1]


def test_a_plan_comes_through(controller):
    controller.plan = lambda body, uuid: scripted_controller.planned(
        ['h1', 'h0'], uuid)
    answer = place(make_client(controller.url), 'u-1', {'x': 1}, 'req-1')
    assert answer['hosts'][0]['host'] == 'h1'
    (uuid, body), = controller.calls
    assert (uuid, body['x']) == ('u-1', 1)


def test_the_same_options_share_one_client(controller):
    client = make_client(controller.url)
    assert make_client(controller.url) is client
    assert make_client(controller.url, timeout_ms=301) is not client


def test_a_client_has_its_options(controller):
    client = make_client(controller.url, timeout_ms=1500,
                         request_budget_ms=2500, breaker_reset_s=7.0)
    assert (client._timeout_s, client._budget_s,
            client._breaker._reset_s) == (1.5, 2.5, 7.0)
    # News of the past may take longer, for nobody waits for them.
    assert (client._late._queue_size, client._late._timeout_s) == (
        1000, 15.0)
    assert (planclient.MAX_REQUESTS, planclient.LATE_S) == (256, 60.0)


def only_warning(caplog):
    (record,) = [record for record in caplog.records
                 if record.name.startswith('nova_filters')
                 and record.levelname != 'DEBUG']
    assert record.levelname == 'WARNING'
    return record.getMessage()


@pytest.mark.parametrize('mode', NO_ANSWERS)
def test_no_answer_costs_one_timeout(controller, mode, caplog):
    """The fault itself lasts 20 seconds, for each call."""
    controller.mode = mode
    client = make_client(controller.url, timeout_ms=300)
    start = time.monotonic()
    for _ in range(19):
        assert place(client, 'u-1', {}, 'req-1') is None
    assert time.monotonic() - start < 5
    # A closed connection may be an old one, so that is tried twice.
    assert len(controller.calls) == (2 if mode == 'close' else 1)
    only_warning(caplog)


@pytest.fixture
def without_collector():
    """Collect no garbage of other tests at the depth of a deep answer, where
    its finalizers find no room on the stack.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures('without_collector')
@pytest.mark.parametrize('mode', BAD_ANSWERS)
def test_no_fault_gets_through_or_lasts(controller, mode, caplog):
    controller.mode = mode
    client = make_client(controller.url, request_budget_ms=600)
    start = time.monotonic()
    for _ in range(19):
        assert place(client, 'u-1', {}, 'req-1') is None
    # The budget, and much room for a busy machine.
    assert time.monotonic() - start < 5
    message = only_warning(caplog)
    if mode == 'refusal' and 'used up' not in message:
        assert 'flavor.vcpus' in message


@pytest.mark.parametrize('url', [
    'http://127.0.0.1:{port}', 'http://no-such-host.invalid:1'])
def test_nobody_there(url, caplog, closed_port):
    client = make_client(url.format(port=closed_port))
    for _ in range(19):
        assert place(client, 'u-1', {}, 'req-1') is None
    assert len([record for record in caplog.records if record.name ==
                'nova_filters.planclient']) == 1


def test_an_unanswered_call_spares_the_next_ones(controller):
    controller.mode = 'hang'
    client = make_client(controller.url, timeout_ms=300)
    for number in range(5):
        place(client, 'u', {}, f'req-{number}')
    assert len(controller.calls) == 1


def test_passes_without_a_plan_are_counted(controller):
    """The controller's metric is told when it is back."""
    controller.mode = 'close'
    client = make_client(controller.url, breaker_reset_s=0.0)
    place(client, 'u', {}, 'req-1')
    client.recall('u-2', 'req-1', list)
    controller.mode = 'plan'
    controller.calls.clear()
    place(client, 'u', {}, 'req-2')
    place(client, 'u', {}, 'req-2')
    assert [body['unplanned_passes'] for _uuid, body in
            controller.calls] == [2, 0]


def test_a_used_up_budget_is_said_once(controller, caplog):
    client = make_client(controller.url)
    place(client, 'u', {}, 'req-1')
    client._request('req-1').spent_s = 1e9
    for _ in range(3):
        assert client.recall('u-2', 'req-1', list) is None
    assert caplog.text.count('used up') == 1


def test_one_trial_after_the_pause_and_recovery(controller, caplog):
    controller.mode = 'close'
    client = make_client(controller.url, breaker_reset_s=0.0)
    assert place(client, 'u', {}, 'req-1') is None
    controller.mode = 'plan'
    caplog.set_level('INFO', 'nova_filters')
    assert place(client, 'u', {}, 'req-2')['status'] == 'neutral'
    assert 'answers again' in caplog.text


def test_a_refusal_is_an_answer(controller):
    now_s = [0.0]
    client = make_client(controller.url)
    client._breaker = planclient.Breaker(10.0, clock=lambda: now_s[0])
    controller.mode = 'close'
    place(client, 'u', {}, 'req-1')
    controller.mode, now_s[0] = 'refusal', 10.0
    for request_id in ('req-2', 'req-3'):
        controller.calls.clear()
        assert place(client, 'u', {}, request_id) is None
        assert len(controller.calls) == 1


def test_half_open_lets_one_call_through():
    now = [0.0]
    breaker = planclient.Breaker(10.0, clock=lambda: now[0])
    assert breaker.allow() and breaker.failed() and not breaker.failed()
    assert not breaker.allow()
    now[0] = 10.0
    assert breaker.allow() and not breaker.allow() and not breaker.allow()
    breaker.undecided()
    assert breaker.allow()
    breaker.failed()
    now[0] = 19.0
    assert not breaker.allow()
    now[0] = 20.0
    assert breaker.allow() and breaker.succeeded() and breaker.allow()


def test_the_budget_is_per_request(controller):
    def slow(body, uuid):
        controller.released.wait(0.5)
        return scripted_controller.planned(['h0'])
    controller.plan = slow
    client = make_client(controller.url, request_budget_ms=2000)
    answers = [place(client, 'u', {}, 'req-1') for _ in range(10)]
    assert answers[0] is not None and answers[-1] is None
    # Each took half a second of the two.
    assert len(controller.calls) <= 4
    # A request that ran out of its own time says nothing of the controller.
    assert place(client, 'u', {}, 'req-2') is not None


def late_calls(controller, n_calls):
    patience.wait_for(lambda: len(controller.calls) >= n_calls,
                      f'{n_calls} calls')
    return controller.calls


def planning_rows(controller, row=0):
    controller.plan = lambda body, uuid: {
        **scripted_controller.planned(['h9'], uuid), 'row': row,
        'rows': {str(row): f'h{row}' for row in range(4)}}


def test_a_plan_in_hand_outlives_the_budget(controller):
    planning_rows(controller)
    client = make_client(controller.url)
    assert place(client, 'u-0', {'k': 7}, 'req-1')['hosts'][0][
        'host'] == 'h9'
    client._request('req-1').spent_s = 1e9
    assert not client.may_ask('req-1') and client.may_ask('req-2')
    for row in (1, 2, 2):
        answer = client.recall(f'u-{row}', 'req-1',
                               lambda: [{'host': 'h1'}, {'host': 'h3'}])
        assert answer['hosts'] == [{'host': f'h{row}'}]
    assert client.recall('u-3', 'req-2', list) is None
    # The controller hears of them afterwards, in order; and of the hosts of
    # a cloud where the planned one is none that Nova may take.
    calls = late_calls(controller, 4)
    assert [(uuid, body.get('launch_index'), body['k'], [
        one['host'] for one in body['hosts']]) for uuid, body in calls[1:]
        ] == [('u-1', 1, 7, ['h1']), *[('u-2', 2, 7, ['h1', 'h3'])] * 2]


def test_hosts_of_a_request_are_not_kept(controller):
    """Of 256 requests and 1,000 hosts they take a hundred megabytes."""
    client = make_client(controller.url)
    place(client, 'u', {'hosts': [{'host': 'h'}]}, 'req-1')
    assert client._request('req-1').body['hosts'] == []
    assert controller.calls[0][1]['hosts'] == [{'host': 'h'}]


def test_a_plan_in_hand_outlives_the_controller(controller):
    planning_rows(controller)
    client = make_client(controller.url)
    place(client, 'u-0', {}, 'req-1')
    controller.mode = 'close'
    answer = place(client, 'u-1', {}, 'req-1')
    assert answer['hosts'] == [{'host': 'h1'}]
    assert place(client, 'u-9', {}, 'req-2') is None
    controller.mode = 'plan'
    late_calls(controller, 4)


@pytest.mark.parametrize('row, hints', [
    (2, {}), (0, {'virtco:index': '0'})])
def test_no_plan_in_hand_when_rows_are_not_those_of_the_batch(
        controller, row, hints):
    planning_rows(controller, row)
    client = make_client(controller.url)
    place(client, 'u-0', {'hints': hints}, 'req-1')
    assert client.recall('u-1', 'req-1', list) is None


def test_a_restarted_controller_costs_nothing():
    """The kept connection is dead, the next one is not."""
    with scripted_controller.ScriptedController() as first:
        client = make_client(first.url)
        first.mode = 'close'
        assert place(client, 'u', {}, 'req-1') is None
        # One attempt and one more on a fresh connection.
        assert len(first.calls) == 2


def test_many_threads(controller):
    controller.plan = lambda body, uuid: scripted_controller.planned([uuid])
    client = make_client(controller.url)
    wrong = []

    def ask(number):
        for turn in range(5):
            uuid = f'{number}-{turn}'
            answer = place(client, uuid, {}, uuid)
            if answer is None or answer['hosts'][0]['host'] != uuid:
                wrong.append((uuid, answer))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(controller.calls) == 80


class Nobody:
    """A controller that must not be called."""

    url = 'http://nobody'


def idle_client(budget_s=2.0):
    return planclient.PlanClient(
        Nobody(), timeout_s=1.0, budget_s=budget_s,
        breaker=planclient.Breaker(1.0))


@pytest.mark.parametrize(('spent_s', 'is_spent'), [(2.0, True),
                                                   (1.999, False)])
def test_a_budget_is_used_up_by_all_of_it(spent_s, is_spent, caplog):
    client = idle_client()
    assert client.may_ask('r') and not client.knows('r')
    client._request('r').spent_s = spent_s
    assert client.knows('r')
    assert client.may_ask('r') == (not is_spent)
    assert client.recall('u', 'r', list) is None
    assert ('is used up' in caplog.text) == is_spent


def test_requests_are_forgotten_the_oldest_first(monkeypatch):
    monkeypatch.setattr(planclient, 'MAX_REQUESTS', 2)
    client = idle_client()
    first = client._request('a')
    client._request('b')
    # Whoever is asked about again is young.
    assert client._request('a') is first
    client._request('c')
    assert [client.knows(one) for one in 'abc'] == [True, False, True]


def test_an_open_breaker_has_one_trial_after_its_pause():
    now_s = 100.0
    breaker = planclient.Breaker(10.0, lambda: now_s)
    assert breaker.allow() and not breaker.succeeded()
    assert breaker.failed() and not breaker.failed()
    now_s = 109.9
    assert not breaker.would_allow() and not breaker.allow()
    now_s = 110.0
    assert breaker.would_allow() and breaker.allow()
    assert not breaker.would_allow() and not breaker.allow()
    breaker.undecided()
    assert breaker.allow()
    assert breaker.succeeded() and breaker.allow() and breaker.allow()


class Told:
    """A controller that says what the test wants, and takes its time.

    :ivar asked: what each call waited for, with its body.
    """

    url = 'http://told'

    def __init__(self, answer=b''):
        self.answer, self.asked = answer, []

    def send(self, method, path, body, timeout_s):
        self.asked.append((path, body, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def told_client(answer, timeout_s=1.0, budget_s=9.0):
    return planclient.PlanClient(
        Told(answer), timeout_s=timeout_s, budget_s=budget_s,
        breaker=planclient.Breaker(60.0))


UNANSWERED = connection.Unanswered(url='u', why='w')


def test_only_a_call_with_its_full_time_opens_the_breaker():
    spent = told_client(UNANSWERED, timeout_s=5.0, budget_s=2.0)
    assert place(spent, 'u', {}, 'r') is None
    # It had but two seconds, and the controller five to answer.
    assert spent.may_ask('s')
    assert spent._link.asked[0][2] <= 2.0
    # As a trial it tells nothing, and leaves that to the next one.
    spent._breaker = planclient.Breaker(0.0)
    spent._breaker.failed()
    assert place(spent, 'u', {}, 't') is None and spent.may_ask('s')
    # Nor is a trial under way for good that its thread did not survive.
    spent._link.answer = RuntimeError('odd')
    with pytest.raises(RuntimeError):
        place(spent, 'u', {}, 'v')
    assert spent.may_ask('s')
    whole = told_client(UNANSWERED)
    assert place(whole, 'u', {}, 'r') is None
    assert not whole.may_ask('s') and whole._link.asked[0][2] == 1.0


def test_what_a_pass_has_taken_before_is_part_of_the_budget():
    client = told_client(UNANSWERED)
    now_s = time.monotonic()
    body = {'hints': {}, 'metadata': {}, 'hosts': []}
    assert client.place('u', body, 'r', now_s - 9.5) is None
    assert client._link.asked == [] and client.may_ask('s')
    assert client.place('u', body, 'r', now_s - 3.0) is None
    assert len(client._link.asked) == 1
    assert 3.0 <= client._request('r').spent_s < 4.0


def test_an_error_is_said_once_and_opens_nothing(caplog):
    client = told_client(connection.Refused(url='u', why='no'))
    for _ in range(3):
        assert place(client, 'u', {}, 'r') is None
    assert len(client._link.asked) == 3 and client.may_ask('r')
    assert len(caplog.messages) == 1 and 'no' in caplog.messages[0]


@pytest.mark.parametrize(('answer', 'is_one'), [
    (b'{"status": "planned", "hosts": [{"host": "a"}]}', True),
    (b'{"status": "neutral", "hosts": [], "why": "w", "rows": {}}', True),
    (b'{"status": "ignored", "hosts": []}', True),
    (b'{"status": "other", "hosts": []}', False),
    (b'{"status": "planned", "hosts": [], "why": 5}', False),
    (b'{"status": "planned", "hosts": {}}', False),
    (b'{"status": "planned", "hosts": [{"host": "a"}, {"host": 5}]}', False),
    (b'{"status": "planned", "hosts": [{}]}', False),
    (b'{"status": "planned", "hosts": [], "rows": []}', False),
    (b'{"hosts": []}', False), (b'[]', False), (b'', False)])
def test_what_is_an_answer(answer, is_one):
    client = told_client(answer)
    if is_one:
        assert client._checked(answer)['hosts'] is not None
    else:
        with pytest.raises(connection.Refused, match='not an answer'):
            client._checked(answer)


def test_the_first_body_and_the_last_rows_count():
    rows = {'1': 'h1', '2': 'h2'}
    client = told_client(json.dumps({
        'status': 'planned', 'hosts': [{'host': 'h0'}],
        'rows': rows}).encode())
    place(client, 'u-0', {'k': 1}, 'r')
    client._link.answer = b'{"status": "planned", "hosts": []}'
    place(client, 'u-1', {'k': 2}, 'r')
    request = client._request('r')
    assert (request.body['k'], request.rows) == (1, rows)
    assert request.uuids == ['u-0', 'u-1']
    assert [request.index(uuid) for uuid in ('u-1', 'u-0', 'u-2')] == [
        1, 0, 2]
