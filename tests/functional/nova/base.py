# SPDX-License-Identifier: Apache-2.0

"""What the tests of this folder share."""

from collections.abc import Iterator
import contextlib
from typing import Any

import fixtures
from nova.virt import fake
import pytest

from nova_filters import coflow_weigher
from tests import patience
from tests.unit.nova_filters import scripted_controller
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import nova_cloud

#: Of a test to which nova_filters, hints and the wire matter only.
FULL = pytest.mark.full(
    reason='a cloud of its own with a controller that the test writes',
    still='functional/nova/test_placement.py::test_planned_hosts, and '
          'unit/nova_filters')
#: Action of a server that moves it to a host of Nova's choice.
LIVE_MIGRATION = {'os-migrateLive': {'host': None, 'block_migration': 'auto'}}
TM = '{"pattern": "all-to-all", "n": %d, "size": "1GB"}'


class ScriptedTest(nova_cloud.Cloud):
    """Nova with a controller whose plan the test writes.

    :ivar plan: row -> host; a list of hosts ranks them.
    """

    hypervisors = {f'h{number}': 4 for number in range(6)}
    notify_controller = True
    #: Long enough that a busy machine does not spoil an exact plan.
    virtco_options: dict[str, Any] = {'timeout_ms': 60_000,
                                      'request_budget_ms': 250_000}

    def setUp(self) -> None:
        self.plan: dict[int, Any] = {}
        self.controller = scripted_controller.ScriptedController(self._answer)
        self.controller.setUp()
        self.addCleanup(self.controller.cleanUp)
        self.virtco_options = {'controller_url': self.controller.url,
                               **type(self).virtco_options}
        super().setUp()
        self.flavor = self.create_flavor('slot1')
        self.nova = nova_client.NovaClient(self.serve_api())

    def _answer(self, body: dict[str, Any], uuid: str) -> dict[str, Any]:
        """The planned hosts first, the other candidates after them."""
        row = int(body['hints'].get('virtco:index', body['launch_index']))
        first = self.plan.get(row, [])
        first = [first] if isinstance(first, str) else first
        candidates = [entry['host'] for entry in body['hosts']]
        hosts = [host for host in first if host in candidates]
        hosts += [host for host in candidates if host not in hosts]
        return scripted_controller.planned(hosts, uuid)

    def create(self, n_vms: int = 1, name: str = 'a', **kwargs: Any
               ) -> list[nova_client.Server]:
        """Servers of one request with a hint, once they are ACTIVE."""
        hints = {'virtco:coflow': name, 'virtco:tm': TM % max(n_vms, 2)}
        hints.update(kwargs.pop('hints', {}))
        return self.nova.wait_active(
            self.nova.create_group(name, n_vms, hints, **kwargs))

    def hosts_by_row(self, servers: list[nova_client.Server]
                     ) -> dict[int, str | None]:
        return {server.row: server.host for server in servers}

    def message(self, event: str, uuid: str) -> dict[str, Any]:
        """An instance's notification, once it is there."""
        def found() -> dict[str, Any] | None:
            for body in list(self.controller.notifications):
                data = body['payload'].get('nova_object.data', {})
                if body['event_type'] == event and data.get('uuid') == uuid:
                    return body
            return None

        return patience.wait_for(found, f'{event} for {uuid}')

    def notified(self, event: str, uuid: str) -> dict[str, Any]:
        """The payload of an instance's notification, once it is there."""
        return self.message(event, uuid)['payload']['nova_object.data']

    def wait_status(self, uuid: str, status: str) -> nova_client.Server:
        waiting = patience.Patience(f'{status} of server {uuid}')
        while (server := self.nova.get_server(uuid)).status != status:
            waiting.pause(0.3)
        return server

    @contextlib.contextmanager
    def failing_spawn(self, *hosts: str) -> Iterator[None]:
        """On these hosts no build succeeds."""
        spawn = fake.FakeDriver.spawn

        def failing(driver: Any, *args: Any, **kwargs: Any) -> Any:
            if driver._host in hosts:
                raise RuntimeError('no disk')
            return spawn(driver, *args, **kwargs)

        with fixtures.MonkeyPatch('nova.virt.fake.FakeDriver.spawn', failing):
            yield

    def record_passes(self) -> list[tuple[float, list[float]]]:
        """(seconds, weights) of each pass of the weigher from now on.

        Time in which a thread of ours waited for a processor is left out.
        """
        passes: list[tuple[float, list[float]]] = []
        original = coflow_weigher.CoflowWeigher.weigh_objects

        def timed(*args: Any) -> Any:
            watch = patience.Answer()
            weights = original(*args)
            passes.append((watch.seconds(), weights))
            return weights

        self.stub_out(
            'nova_filters.coflow_weigher.CoflowWeigher.weigh_objects', timed)
        return passes
