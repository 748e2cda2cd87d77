# SPDX-License-Identifier: Apache-2.0

"""Nova as eight schedulers see it: placement, and numbers that come late.

What is claimed is exact and at once, as in placement. What schedulers read as
free is what each compute service wrote last: some time after a claim, and
before room is released. They go on with what they read while others launch.
"""

import collections
import contextlib
import dataclasses
import datetime
import heapq
import itertools
import queue
import random
import threading
import time
import uuid

import requests

from tests import patience

MEMORY_MB = 512
#: Share of groups whose VMs come one by one, each with a flavor of its own.
MIXED = 0.3


@dataclasses.dataclass(frozen=True)
class Pace:
    """Seconds, each drawn between 0 and its value.

    :ivar numbers_s: from a claim until schedulers read it.
    :ivar build_s: of a build.
    :ivar stale_s: between reading the numbers and asking.
    """

    numbers_s: float = 2.0
    build_s: float = 0.5
    stale_s: float = 0.1


class Nova:
    """Hosts with so many vCPUs each.

    :param url: of the controller.
    :param flavors: vCPUs that a VM may have.
    :param unhinted: share of the launches without a hint.
    :param failures: how many of the builds fail on their host.
    :param patience_s: Nova waits no longer for an answer.
    """

    def __init__(self, url, capacities, seed=0, failures=0.1, pace=Pace(),
                 patience_s=120.0, flavors=(1,), unhinted=0.0):
        self.url = url
        self.flavors = flavors
        self.unhinted = unhinted
        self.vcpus = {}
        self.capacities = dict(capacities)
        self.pace = pace
        self.failures = failures
        self.patience_s = patience_s
        self.counts = collections.Counter()
        self.slowest_s = 0.0
        self.claims = {}
        # Where the controller knows VMs to be: planned, or told.
        self._known = {}
        self._seed = seed
        self._used = dict.fromkeys(capacities, 0)
        # What each compute service counts, and what of it may be read.
        self._tracked = dict.fromkeys(capacities, 0)
        self._shown = dict.fromkeys(capacities, (0, 0))
        self._lock = threading.Lock()
        self._later = Later()
        self._bus = Bus(url, seed, self._told)
        self._numbers = itertools.count(1)

    # Placement.

    def claim(self, vm, host):
        """Whether there was room."""
        with self._lock:
            if self._used[host] + self.vcpus[vm] > self.capacities[host]:
                return False
            self._used[host] += self.vcpus[vm]
            self.claims[vm] = host
            return True

    def release(self, vm):
        with self._lock:
            host = self.claims.pop(vm)
            self._used[host] -= self.vcpus[vm]
        return host

    def _told(self, event_type, vm, host):
        with self._lock:
            if event_type == 'instance.create.end':
                self._known[vm] = host
            elif event_type != 'instance.create.start':
                self._known.pop(vm, None)

    def _is_full_of_known(self, host, vcpus):
        """Whether VMs leave no room there that the controller knows of."""
        with self._lock:
            return vcpus + sum(
                self.vcpus[vm] for vm, at in self.claims.items()
                if at == host == self._known.get(vm)) > self.capacities[host]

    def candidates(self, vcpus):
        """Hosts with room for a VM, and what compute services' numbers say.
        """
        with self._lock:
            return {host: self.capacities[host] - self._shown[host][1]
                    for host in self.capacities
                    if self._used[host] + vcpus <= self.capacities[host]}

    def n_used(self):
        with self._lock:
            return sum(self._used.values())

    def show(self, host, change, delay_s=0.0):
        """Schedulers will read it; a later number is never overwritten."""
        with self._lock:
            self._tracked[host] += change
            written = next(self._numbers), self._tracked[host]

        def later():
            with self._lock:
                self._shown[host] = max(self._shown[host], written)
        if delay_s:
            self._later.do(delay_s, later)
        else:
            later()

    # What nova-api, schedulers, conductor and computes do.

    def launch(self, n_vms, rng, project='p'):
        """A batch of VMs; those that were built, on their hosts."""
        # Else a slow machine's events would come minutes late.
        self._bus.keep_up()
        number = next(self._numbers)
        key = f'{self._seed}-{number}'
        vms = [str(uuid.UUID(int=rng.getrandbits(128)))
               for _ in range(n_vms)]
        one_by_one = rng.random() < MIXED
        flavors = [rng.choice(self.flavors) for _ in vms]
        self.vcpus |= dict(zip(vms, flavors if one_by_one
                               else flavors[:1] * n_vms))
        if rng.random() < self.unhinted:
            return self._launch_unhinted(vms, rng)
        session = requests.Session()
        session.trust_env = False
        chosen, consumed = {}, collections.Counter()
        for index, vm in enumerate(vms):
            if one_by_one:
                consumed.clear()
            hosts = self._schedule(
                session, key, vm, index, rng, project, consumed, n_vms,
                1 if one_by_one else n_vms)
            if not hosts:
                self.notify('compute_task.build_instances.error', vm)
                self.counts['no valid host'] += 1
                continue
            consumed[hosts[0]] += self.vcpus[vm]
            chosen[vm] = hosts
        # All builds begin at once, whichever ends first.
        for vm, hosts in chosen.items():
            self._begin(vm, hosts[0], rng)
        return {vm: host for vm, hosts in chosen.items()
                if (host := self._build(vm, hosts, rng))}

    def _launch_unhinted(self, vms, rng):
        """The controller is told by notifications only."""
        built = {}
        for vm in vms:
            hosts = sorted(self.candidates(self.vcpus[vm]))
            rng.shuffle(hosts)
            host = next((host for host in hosts if self.claim(vm, host)),
                        None)
            if host is None:
                continue
            self._begin(vm, host, rng)
            if self._build(vm, [host], rng):
                built[vm] = host
                self.counts['without a hint'] += 1
        return built

    def _schedule(self, session, key, vm, index, rng, project, consumed,
                  n_rows, n_vms):
        """Where it is claimed, and alternates."""
        vcpus = self.vcpus[vm]
        free = self.candidates(vcpus)
        if not free:
            return []
        time.sleep(rng.random() * self.pace.stale_s)
        answer = self._ask(session, vm, {
            'project_id': project, 'display_name': f'vm-{key}-{index}',
            'reservation_id': f'r-{key}-{index if n_vms == 1 else ""}',
            'launch_index': index if n_vms > 1 else 0,
            'num_instances': n_vms, 'metadata': {},
            'hints': {'virtco:coflow': f'g{key}', 'virtco:tm': _ring(n_rows)},
            'flavor': {'vcpus': vcpus, 'memory_mb': MEMORY_MB, 'disk_gb': 1},
            'hosts': [{'host': host, 'free': {
                'vcpus': max(0, left - consumed[host]), 'memory_mb': 65536,
                'disk_gb': 900}} for host, left in free.items()]})
        order = [entry['host'] for entry in answer['hosts']]
        if answer['status'] != 'planned':
            order = sorted(free)
            rng.shuffle(order)
        else:
            self._known[vm] = answer['host']
        first = next((host for host in order if self.claim(vm, host)), None)
        if answer['status'] == 'planned' and first != answer['host']:
            self.counts['refused though known'] += self._is_full_of_known(
                answer['host'], vcpus)
        if first is None:
            return []
        if answer['status'] == 'planned':
            self.counts['as planned' if first == answer['host']
                        else 'refused by placement'] += 1
        return [first, *[host for host in order if host != first][:2]]

    def _ask(self, session, vm, body):
        started_s = time.monotonic()
        try:
            response = session.put(f'{self.url}/v1/placements/{vm}',
                                   json=body, timeout=self.patience_s)
        except requests.RequestException as error:
            # What the plug-ins do then: Nova decides.
            self.counts[f'no answer: {type(error).__name__}'] += 1
            return {'status': 'neutral', 'hosts': []}
        finally:
            self.slowest_s = max(self.slowest_s,
                                 time.monotonic() - started_s)
        assert response.status_code == 200, response.text
        answer = response.json()
        self.counts[answer['status']] += 1
        if answer['status'] != 'planned':
            self.counts[f'{answer["status"]}: {answer["why"][:60]}'] += 1
        return answer

    def _begin(self, vm, host, rng):
        self.notify('instance.create.start', vm, host)
        self.show(host, self.vcpus[vm], rng.random() * self.pace.numbers_s)

    def _build(self, vm, hosts, rng):
        """On its host, or on an alternate that nobody asks us about."""
        for host in hosts:
            if vm not in self.claims:
                if not self.claim(vm, host):
                    continue
                self._begin(vm, host, rng)
            time.sleep(rng.random() * self.pace.build_s)
            if rng.random() < self.failures:
                self.counts['failed builds'] += 1
                self.show(host, -self.vcpus[vm])
                self.release(vm)
                continue
            self.notify('instance.create.end', vm, host)
            return host
        self.notify('compute_task.build_instances.error', vm)
        self.counts['not built'] += 1
        return None

    def delete(self, vm):
        # ComputeManager._delete_instance: the numbers, then placement.
        self.show(self.claims[vm], -self.vcpus[vm])
        host = self.release(vm)
        self.notify('instance.delete.end', vm, host)

    def notify(self, event_type, vm, host=None):
        data = {'uuid': vm, 'instance_uuid': vm, 'host': host, 'flavor': {
            'nova_object.data': {
                'vcpus': self.vcpus[vm], 'memory_mb': MEMORY_MB,
                'root_gb': 1, 'ephemeral_gb': 0}}}
        now = datetime.datetime.now(datetime.UTC).isoformat()
        if event_type == 'instance.create.start':
            data['host'] = None
        self._bus.send({'event_type': event_type, 'timestamp': now,
                        'payload': {'nova_object.data': data},
                        'publisher_id': f'nova-compute:{host}'})

    def settle(self):
        """Wait until all that was sent has been taken in."""
        self._bus.drain()

    def n_again(self):
        """Notifications that had to be sent once more."""
        return self._bus.n_again

    def close(self):
        self._bus.stop()
        self._later.stop()


class Bus:
    """Delivers each notification at least once, in any order.

    :param told: is called with type, VM and host of one that was taken.
    """

    def __init__(self, url, seed, told, n_workers=2, twice=0.05):
        self._url = url
        self._told = told
        self._twice = twice
        self._queue = queue.SimpleQueue()
        self._left = 0
        self._changed = threading.Condition()
        self._errors = []
        self.n_again = 0
        self._threads = [threading.Thread(
            target=self._work, args=(random.Random(f'{seed}-{number}'),),
            daemon=True) for number in range(n_workers)]
        for thread in self._threads:
            thread.start()

    def send(self, body):
        with self._changed:
            self._left += 1
        self._queue.put(body)

    def keep_up(self, most=20):
        """Wait until so few are left; not for long: it may be cut off."""
        until_s = time.monotonic() + 10
        while self._left > most and time.monotonic() < until_s:
            time.sleep(0.05)

    def drain(self):
        wait = patience.Patience('the end of the notifications', 120)
        while self._left:
            assert not self._errors, self._errors
            wait.pause()

    def stop(self):
        for _thread in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, rng):
        session = requests.Session()
        session.trust_env = False
        while (body := self._queue.get()) is not None:
            if not self._deliver(session, body):
                self.n_again += 1
                time.sleep(0.05)
                self._queue.put(body)
                continue
            data = body['payload']['nova_object.data']
            self._told(body['event_type'], data['uuid'], data['host'])
            if rng.random() < self._twice:
                self.send(body)
            with self._changed:
                self._left -= 1

    def _deliver(self, session, body):
        with contextlib.suppress(requests.RequestException):
            response = session.post(f'{self._url}/v1/notifications',
                                    json=body, timeout=30)
            if response.status_code == 202:
                return True
            if response.status_code not in (409, 503):
                self._errors.append(response.text)
        return False


class Later:
    """Does things after a time, in a thread of its own."""

    def __init__(self):
        self._todo, self._numbers = [], itertools.count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def do(self, delay_s, action):
        with self._changed:
            heapq.heappush(self._todo, (time.monotonic() + delay_s,
                                        next(self._numbers), action))
            self._changed.notify()

    def stop(self):
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._thread.join()

    def _loop(self):
        while True:
            with self._changed:
                if self._is_stopped:
                    return
                wait_s = (self._todo[0][0] - time.monotonic()
                          if self._todo else None)
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                action = heapq.heappop(self._todo)[2]
            action()


def _ring(n_vms):
    if n_vms == 1:
        return '[[0]]'
    flows = ', '.join(f'[{i}, {(i + 1) % n_vms}, "100MB"]'
                      for i in range(n_vms))
    return f'{{"n": {n_vms}, "flows": [{flows}]}}'


def drive(nova, n_launches, n_schedulers, seed=0, most_vms=4,
          fullness=0.8):
    """Launch so many VMs by parallel schedulers, delete old groups so that
    the cloud stays so full, and everything at the end.
    """
    tickets = itertools.count(1)
    alive, lock, errors = collections.deque(), threading.Lock(), []
    room = (sum(nova.capacities.values()) * fullness
            - n_schedulers * most_vms * sum(nova.flavors)
            / len(nova.flavors))

    def work(number):
        rng = random.Random(f'{seed}-{number}')
        try:
            while (n_vms := rng.randint(1, most_vms)) and not errors:
                with lock:
                    if sum(next(tickets) > n_launches
                           for _ in range(n_vms)):
                        return
                built = nova.launch(n_vms, rng)
                old, left = [], nova.n_used()
                with lock:
                    alive.append(built)
                    while alive and left > room:
                        group = alive.popleft()
                        old += group
                        left -= sum(nova.vcpus[vm] for vm in group)
                for vm in old:
                    nova.delete(vm)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,))
               for number in range(n_schedulers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
