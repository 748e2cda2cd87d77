# SPDX-License-Identifier: Apache-2.0

"""Real Nova in one process: API, conductor, scheduler, placement, computes.

What is real and what Nova's fixtures stand in for: the API, the conductor,
the scheduler, placement, one compute service per hypervisor and the (SQLite)
databases are Nova's own code; the message bus is in process, and keystone,
glance, neutron, cinder and the virtualisation driver are Nova's fakes.

This module has to be imported before anything else of Nova.
"""

# Before anything else of Nova.
from nova.tests.functional import integrated_helpers

# isort: split
from collections.abc import Iterator
import contextlib
import logging
import os
import sys
import threading
from typing import Any
from unittest import mock

import fixtures
import futurist._thread
from nova import rpc
from nova.tests import fixtures as nova_fixtures
from nova.virt import fake
from oslo_db.sqlalchemy import enginefacade
import oslo_messaging
from placement import deploy
import sqlalchemy
import waitress

from nova_filters import plugin_options as virtco_conf

SLOT_VCPUS = 1
SLOT_MEMORY_MB = 512
FLAVOR_DISK_GB = 1
HOST_DISK_GB = 1000

API_THREADS = 8
# An idle thread looks that often whether it is to end.
IDLE_S = 0.5
DEFAULT_HEADERS = {
    'HTTP_X_AUTH_USER': 'admin',
    'HTTP_X_AUTH_PROJECT_ID': '6f70656e737461636b20342065766572',
    'HTTP_X_ROLES': 'admin,member,reader',
}

FILTERS = ['ComputeFilter', 'ServerGroupAntiAffinityFilter',
           'ServerGroupAffinityFilter', 'SameHostFilter',
           'DifferentHostFilter']


class Cloud(integrated_helpers._IntegratedTestBase):
    """Nova with virtco's filter and weigher; subclass it in a test.

    :cvar hypervisors: host name -> slots of 1 vCPU and 512 MB.
    :cvar virtco_options: options of ``[virtco]`` in nova.conf.
    :cvar notify_controller: send versioned notifications with the
        ``virtco_http`` driver.
    """

    microversion = 'latest'
    ADMIN_API = True
    CAST_AS_CALL = False
    REQUIRES_LOCKING = True

    hypervisors: dict[str, int] = {'h0': 4, 'h1': 4, 'h2': 4}
    virtco_options: dict[str, Any] = {}
    notify_controller = False

    def setUp(self) -> None:
        """Start Nova's services in this process."""
        for name, method in (
                ('_wrap_target_cell', _target_cell),
                ('_wrap_get_context_manager', _get_context_manager)):
            self.useFixture(fixtures.MockPatchObject(
                nova_fixtures.CellDatabases, name, method))
        self._options()
        super().setUp()
        self._reserve_writes()
        if self.notify_controller:
            self._notify_controller()

    def _setup_services(self) -> None:
        self._save_work()
        super()._setup_services()

    def _save_work(self) -> None:
        """Leave out the checks by which Nova's tests find faults of Nova."""
        # They make idle threads look for work 100 times a second, which is
        # most of a core once a few dozen servers have been built.
        self.useFixture(fixtures.MockPatchObject(
            futurist._thread.ThreadWorker, 'MAX_IDLE_FOR', IDLE_S))
        # They format every debug message, too.
        logging.getLogger().setLevel(logging.INFO)
        # They hold each answer against its schema.
        self.flags(response_validation='ignore', group='api')
        # They send each notification in the old format as well.
        self.flags(notification_format='versioned', group='notifications')

    def _clear_attrs(self) -> None:
        """Keep a test's attributes, which Nova drops, for pytest."""

    def _reserve_writes(self) -> None:
        """Make transactions that will write tell SQLite so when they begin.

        Else SQLite refuses its first write, without waiting, when another
        thread wrote since the transaction's first read ("database is
        locked"), and Nova never ends what it was doing: a server that is
        deleted for ever. Nova's databases in production wait instead.
        """
        scope = enginefacade._TransactionContextManager._transaction_scope
        thread = threading.local()

        @contextlib.contextmanager
        def marked_scope(manager: Any, context: Any) -> Iterator[Any]:
            before = getattr(thread, 'writes', False)
            thread.writes = before or manager._mode is enginefacade._WRITER
            try:
                with scope(manager, context) as resource:
                    yield resource
            finally:
                thread.writes = before

        def begin(connection: sqlalchemy.Connection) -> None:
            # oslo.db says BEGIN unless it finds this mark.
            if (getattr(thread, 'writes', False)
                    and connection.dialect.name == 'sqlite'
                    and 'in_transaction' not in connection.info):
                connection.exec_driver_sql('BEGIN IMMEDIATE')
                connection.info['in_transaction'] = True

        self.useFixture(fixtures.MockPatchObject(
            enginefacade._TransactionContextManager, '_transaction_scope',
            marked_scope))
        sqlalchemy.event.listen(sqlalchemy.Engine, 'begin', begin)
        self.addCleanup(sqlalchemy.event.remove, sqlalchemy.Engine, 'begin',
                        begin)

    def _options(self) -> None:
        """Set Nova's options before the services start.

        Nova's fixtures put all of them back.
        """
        self.flags(api_paste_config=os.path.join(
            sys.prefix, 'etc', 'nova', 'api-paste.ini'), group='wsgi')
        self.flags(instances=-1, cores=-1, ram=-1, server_groups=-1,
                   server_group_members=-1, group='quota')
        self.flags(compute_driver='fake.FakeDriver',
                   cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0,
                   disk_allocation_ratio=1.0, initial_cpu_allocation_ratio=1.0,
                   initial_ram_allocation_ratio=1.0,
                   initial_disk_allocation_ratio=1.0,
                   reserved_host_memory_mb=0)
        # As an operator enables virtco in nova.conf.
        self.flags(
            available_filters=[
                'nova.scheduler.filters.all_filters',
                'nova_filters.coflow_filter.CoflowFilter'],
            enabled_filters=FILTERS + ['CoflowFilter'],
            weight_classes=['nova.scheduler.weights.all_weighers',
                            'nova_filters.coflow_weigher.CoflowWeigher'],
            group='filter_scheduler')
        virtco_conf.register_opts(integrated_helpers.CONF)
        if self.virtco_options:
            self.flags(group='virtco', **self.virtco_options)

    def _setup_compute_service(self) -> Any:
        for host, slots in self.hypervisors.items():
            service = self.start_hypervisor(host, slots)
        return service

    def start_hypervisor(self, host: str, slots: int) -> Any:
        """Start a compute service with this many slots."""
        size: dict[str, Any] = {
            'vcpus': slots * SLOT_VCPUS,
            'memory_mb': slots * SLOT_MEMORY_MB,
            'local_gb': HOST_DISK_GB}
        with mock.patch.multiple(fake.FakeDriver, **size):
            service = self._start_compute(host)
        for name, value in size.items():
            setattr(service.manager.driver, name, value)
        return service

    def _notify_controller(self) -> None:
        """Replace the fixture's notifier, which only records."""
        self.stub_out('nova.rpc.NOTIFIER', oslo_messaging.Notifier(
            rpc.NOTIFICATION_TRANSPORT,
            serializer=rpc.RequestContextSerializer(
                rpc.JsonPayloadSerializer()),
            driver='virtco_http', topics=['versioned_notifications']))

    def create_flavor(self, name: str, slots: int = 1) -> str:
        """Create a flavor that takes this many slots; return its id."""
        flavor = self.api.post_flavor({'flavor': {
            'id': name, 'name': name, 'vcpus': slots * SLOT_VCPUS,
            'ram': slots * SLOT_MEMORY_MB, 'disk': FLAVOR_DISK_GB}})
        return str(flavor['id'])

    def serve_api(self, listen: str = '127.0.0.1', port: int = 0) -> str:
        """Serve the compute API on a real socket; returns its URL."""
        return self._serve(_with_defaults(self.api_fixture.app()), listen,
                           port) + '/v2.1'

    def serve_placement(self, listen: str = '127.0.0.1', port: int = 0) -> str:
        """Serve placement's API on a real socket; returns its URL."""
        app = deploy.loadapp(self.placement.fixture.conf_fixture.conf)

        def as_admin(environ: dict[str, Any], start_response: Any) -> Any:
            environ['HTTP_X_AUTH_TOKEN'] = 'admin'
            return app(environ, start_response)

        return self._serve(as_admin, listen, port)

    def _serve(self, app: Any, listen: str, port: int) -> str:
        """Serve an application on a thread; return its URL."""
        server = waitress.create_server(app, threads=API_THREADS,
                                        host=listen, port=port)

        def run() -> None:
            with contextlib.suppress(OSError):  # its socket was closed
                server.run()

        threading.Thread(target=run, daemon=True).start()
        self.addCleanup(server.close)
        self.addCleanup(server.task_dispatcher.shutdown)
        return f'http://{listen}:{server.effective_port}'


# Nova's fixture keeps the cell of untargeted database access in a global under
# a readers-writer lock. It deadlocks with threads: one reads and waits for the
# write transaction of another, that one wants to read, and a writer that waits
# for the first keeps it out. Contexts carry their cell along, and untargeted
# access belongs to the one real cell, so neither is needed.

@contextlib.contextmanager
def _target_cell(fixture: Any, context: Any, cell_mapping: Any
                 ) -> Iterator[Any]:
    with fixture._real_target_cell(context, cell_mapping) as found:
        yield found


def _get_context_manager(fixture: Any, context: Any) -> Any:
    return getattr(context, 'db_connection', None) or (
        fixture._default_ctxt_mgr)


def _with_defaults(app: Any) -> Any:
    """Make requests without credentials the administrator's."""
    def wrapped(environ: dict[str, Any], start_response: Any) -> Any:
        for key, value in DEFAULT_HEADERS.items():
            environ.setdefault(key, value)
        return app(environ, start_response)
    return wrapped
