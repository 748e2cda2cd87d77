# SPDX-License-Identifier: Apache-2.0

"""A database that answers nothing, or not what tenants ask, while as many ask
as may: who leads goes on, and so does monitoring. And a leader that hangs.
"""

import contextlib
import signal
import threading
import time

import psutil
import requests
import sqlalchemy as sa

from tests import patience
from tests.faults import edges
from tests.functional.controller import processes

#: More than there are threads for requests, and connections for them.
N_TENANTS = 80
#: Of monitoring; a second of it for a busy machine.
ANSWER_S = 1 + 1
TRIALS = 4


class Flood:
    """Tenants that ask for their coflows until it is closed."""

    def __init__(self, url):
        self._url = url
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True)
                         for _ in range(N_TENANTS)]
        for one in self._threads:
            one.start()

    def _ask(self):
        while not self._is_over.wait(0.5):
            with contextlib.suppress(requests.RequestException):
                requests.get(f'{self._url}/v1/coflows',
                             params={'project_id': 'p'}, timeout=60)

    def close(self):
        self._is_over.set()
        for one in self._threads:
            one.join(30)


def slowest_s(controller, seconds):
    """Longest time of an answer to monitoring while it leads."""
    found_s, until_s = 0.0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        assert processes.leader_of(controller) == {
            'epoch': 1, 'here': True, 'reached': True}
        for path in ('/health', '/metrics'):
            watch = patience.Answer()
            requests.get(controller.url + path, timeout=60)
            found_s = max(found_s, watch.seconds())
        time.sleep(0.1)
    return found_s


@contextlib.contextmanager
def sending(home, controller):
    """A coflow whose bytes are to be written down again and again."""
    tenant, is_over = controller.tenant(), threading.Event()
    found = []
    for number, host in enumerate(tenant.launch(
            2, slots=1, matrix='[[0, 1e12], [0, 0]]')):
        found.append(edges.Edge(home, tenant.host(host), controller.url))
        found[-1].add_port(tenant.instance(number), number)
        found[-1].report()
    coflow_id = tenant.coflow()['id']
    sender, receiver = found
    patience.wait_for(lambda: sender.has_class(coflow_id), 'a class')

    def send():
        while not is_over.wait(0.2):
            sender.count(coflow_id, receiver.host)
            sender.report()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)
        for edge in found:
            edge.close()


def test_who_leads_goes_on_while_tenants_wait(databases, tmp_path):
    """Their table is locked, and they use up all connections; so does what
    the leader wants to write.
    """
    url = databases.make_current('mariadb', tmp_path)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    cloud = processes.Cloud(tmp_path, url)
    with contextlib.ExitStack() as stack:
        stack.callback(cloud.stop)
        first = cloud.start('controller', 'first')
        cloud.start('controller', 'second')
        stack.enter_context(sending(tmp_path, first))
        holder = stack.enter_context(engine.connect())
        holder.exec_driver_sql('LOCK TABLES coflows WRITE')
        stack.enter_context(contextlib.closing(Flood(first.url)))
        found_s = slowest_s(first, 4 * processes.LEASE_S)
        holder.exec_driver_sql('UNLOCK TABLES')
        assert found_s < ANSWER_S


def test_all_go_on_without_a_database(databases, tmp_path):
    """Whoever noticed first that it stands still."""
    url = databases.make_current('postgresql', tmp_path)
    server = databases.server('postgresql')
    cloud = processes.Cloud(tmp_path, url)
    with contextlib.ExitStack() as stack:
        stack.callback(cloud.stop)
        cloud.start('controller', 'first')
        second = cloud.start('controller', 'second')
        tenant = second.tenant()
        edge = edges.Edge(tmp_path, tenant.host('h0'), second.url)
        stack.callback(edge.close)
        edge.report()
        patience.wait_for(lambda: edge.generation, 'a policy')
        # Who watches processes kills one whose database is away.
        gone = [cloud.start(name) for name in ('api', 'distributor')]
        for one in gone:
            patience.wait_for(lambda one=one: processes.leader_of(one)[
                'reached'], 'its leader')
        for _ in range(TRIALS):
            with standing_still(server):
                # Both leases end.
                time.sleep(2 * processes.LEASE_S)
                while gone:
                    gone.pop().stop(signal.SIGKILL)
                before = edge.generation
                edge.link_bps *= 1.5
                edge.report()
                patience.wait_for(lambda: edge.generation > before,
                                  'a policy that follows a report')
            patience.wait_for(
                lambda: requests.get(second.url + '/health').ok,
                'the database')


def test_edges_find_the_next_leader_while_one_stands_still(databases,
                                                           tmp_path):
    """Whoever tries the old one meanwhile waits for its words in vain."""
    cloud = processes.Cloud(tmp_path, databases.make_current(
        'mariadb', tmp_path))
    with contextlib.ExitStack() as stack:
        stack.callback(cloud.stop)
        first = cloud.start('controller', 'first')
        second = cloud.start('controller', 'second')
        tenant = second.tenant()
        found = [edges.Edge(tmp_path, tenant.host(f'h{number}'), second.url)
                 for number in range(4)]
        for edge in found:
            stack.callback(edge.close)
            edge.report()
        patience.wait_for(lambda: all(edge.generation for edge in found),
                          'the first policies')
        # From then on each has its sign of life at another time.
        time.sleep(processes.LEASE_S)
        first.process.send_signal(signal.SIGSTOP)
        watch = patience.Answer()
        patience.wait_for(lambda: all(
            edge.link.is_up and edge.link._epochs.newest == 2
            for edge in found), 'the next leader')
        # Three seconds of slack for a busy machine; it took 8 before.
        assert watch.seconds() < processes.LEASE_S + 1 + 3


@contextlib.contextmanager
def standing_still(server):
    family = server._family()

    def each(send):
        for one in family:
            # Such as one that cleans up in the background.
            with contextlib.suppress(psutil.NoSuchProcess):
                send(one)

    each(psutil.Process.suspend)
    try:
        yield
    finally:
        each(psutil.Process.resume)
