# SPDX-License-Identifier: Apache-2.0

"""The emulated datacentre in operation: build, boot VMs, send, tear down."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import concurrent.futures
import contextlib
import functools
import itertools
import json
import signal
import typing

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import requests

from virtco import units
from virtco.client import v1
from virtco.model import coflow as coflow_model
from virtco.wire import host as host_wire
from virtco.wire import operation as operation_wire
from virtco.wire import rate as rate_wire
from virtco.wire import setting as setting_wire
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import patience
from virtco_lab.emulation import planned_cloud
from virtco_lab.emulation import process
from virtco_lab.emulation import results
from virtco_lab.emulation import services

MEASURE_STALL_S = 30.0
# Effectively no timeout: a request ends with its answer, or when the
# controller is idle for too long.
_REQUEST_S = 86400.0

T = typing.TypeVar('T')
OnCount = Callable[[int], object]


def flavor(n_slots: int) -> str:
    """Return the name of the flavor with this number of slots."""
    return f'slot{n_slots}'


class Testbed:
    """Datacentre of a run with all its services, a context manager.

    Create it in the main thread (see :class:`process.Child`).
    """

    def __init__(self, bed: beds.Bed, say: process.Say = lambda line: None):
        """Prepare a testbed; nothing is started yet.

        :param say: called with a line for each step, and from time to time
            during long ones.
        """
        self.bed = bed
        self.say = say
        self._run = namespaces.new_run()
        self._state = namespaces.scratch_dir(self._run)
        self._janitor = janitor.Janitor(self._run)
        self.fabric = fabric_module.Fabric(self._run)
        self._children: list[process.Child] = []
        # The tenant's cloud, set when the services are started.
        self._cloud: nova_client.NovaClient | planned_cloud.PlannedCloud
        # The machine's proxies, if any, do not reach into the namespaces.
        self._http = requests.Session()
        self._http.trust_env = False
        self._services, self._controller = (v1.Client(
            url, ks_session.Session(auth=noauth.NoAuth(), session=self._http),
            timeout_s=_REQUEST_S) for url in (
                services.controller_url(self.fabric),
                services.page_url() if bed.has_page
                else services.controller_url(self.fabric)))
        self._planner: process.Child | None = None
        self._nova: process.Child | None = None
        self._edges: dict[str, process.Child] = {}
        self._inside: concurrent.futures.ThreadPoolExecutor | None = None

    def __enter__(self) -> typing.Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self.build()
            self.start_services()
            stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove everything, however far it got."""
        try:
            for child in reversed(self._children):
                child.popen.terminate()
            for child in reversed(self._children):
                child.stop()
            # After them: a question that none of them answers ends now.
            if self._inside is not None:
                self._inside.shutdown(cancel_futures=True)
        finally:
            self._janitor.dismiss()

    def build(self) -> None:
        """Make the namespaces and the links."""
        self.say(f'building {len(self.bed.hosts)} hypervisors, uplinks of '
                 f'{units.format_rate(self.bed.link_bps)}')
        self.bed.logs.mkdir(parents=True, exist_ok=True)
        self.fabric.build(self.bed)
        self._inside = namespaces.executor(self.fabric.control)

    def start_services(self) -> None:
        """Start controller, edge modules and Nova, until all answer.

        :raises virtco_lab.emulation.process.ProcessFailed: names the process
            that ended, with the last lines of its log.
        """
        self.say('starting controller, edge modules and Nova'
                 if self.bed.has_nova else
                 'starting controller and edge modules')
        where = self._state, self.bed.logs
        flavors = {flavor(n): n for n in range(1, self.bed.slots + 1)}
        if self.bed.has_nova:
            self._nova = services.start_nova(
                self.fabric, self.bed.slots, flavors, *where)
            self._children.append(self._nova)
        self._planner = services.start_controller(
            self.fabric, *where, options={**self.bed.controller, **(
                services.page_options(self.fabric) if self.bed.has_page
                else {})})
        self._children.append(self._planner)
        self._wait(lambda: self._health() is not None,
                   'the controller to open its port', self._planner)
        for host in self.bed.hosts:
            self._edges[host] = services.start_edge(
                self.fabric, host, self.bed.link_bps, *where)
            self._children.append(self._edges[host])
        self._wait(lambda: self._health() == 200,
                   'the controller to be ready', self._planner)
        if self._nova is not None:
            self._wait(self._nova.has_line, 'Nova to be ready', self._nova)
            ready = json.loads(self._nova.read_line())
            self._cloud = nova_client.NovaClient(ready['url'],
                                                 timeout_s=_REQUEST_S)
        else:
            self._cloud = planned_cloud.PlannedCloud(
                self._services, self.bed.hosts, self.bed.slots,
                flavors)
        self._wait(lambda: self._reported() >= set(self.bed.hosts),
                   'a report of every edge module', self._planner,
                   lambda: len(self._reported()))

    def open_page(self) -> str:
        """Make the live page reachable and return its address."""
        child, url = services.start_page(self.fabric, self.bed.logs)
        self._children.append(child)

        def is_there() -> bool:
            try:
                return self._http.get(url, timeout=_REQUEST_S).ok
            except requests.ConnectionError:
                return False

        self._wait(is_there, 'the live page', child)
        return url

    def wait_measured(self) -> bool:
        """Wait until every pair of hosts was measured; False: not all.

        A pair shows the rate of the slower host, so a host's rate is known
        only after a measurement with a faster one.
        """
        self.say('measuring the uplinks with packet trains')
        left = set(itertools.permutations(self.bed.hosts, 2))

        def is_measured() -> bool:
            left.difference_update(
                (pair.src, pair.dst)
                for pair in self.ask(rate_wire.LIST).pairs)
            return not left

        try:
            self._wait(is_measured, 'a measurement of every pair',
                       self._planner, lambda: len(left), MEASURE_STALL_S)
        except process.NotReady:
            return False
        return True

    def host_rates(self) -> tuple[results.HostRate, ...]:
        """Return real and measured rates of all hosts, in bit/s."""
        known = self.controller_hosts()
        return tuple(results.HostRate(
            host, self.bed.link_bps, known[host].measured_egress_bps,
            known[host].measured_ingress_bps,
            slow=rate_bps < self.bed.link_bps)
            for host, rate_bps in self.bed.rates_bps.items())

    def usable_rates_bps(self) -> dict[str, float]:
        """Return the slower direction of each uplink, by the controller."""
        return {host: min(entry.egress_bps, entry.ingress_bps)
                for host, entry in self.controller_hosts().items()}

    def edge_pids(self) -> dict[str, list[int]]:
        """Return the process ids of each hypervisor's edge module."""
        return {host: edge.pids() for host, edge in self._edges.items()}

    def controller_hosts(self) -> dict[str, host_wire.Host]:
        """Read the controller's state of each hypervisor, by name."""
        return {entry.host: entry for entry in self.ask(host_wire.LIST).hosts
                if entry.host in self.bed.hosts}

    def change_settings(self, settings: dict[str, str]) -> None:
        """Change settings of the running controller through its API."""
        self.ask(setting_wire.CHANGE, **settings)

    def ask(self, operation: operation_wire.Operation[T], *args: typing.Any,
            **given: typing.Any) -> T:
        """Call an operation of the API in the control namespace."""
        return self.inside(lambda: self._controller.call(
            operation, *args, **given))

    def inside(self, function: Callable[[], T],
               what: str = 'an answer of the controller',
               of: process.Child | None = None,
               progress: Callable[[], object] | None = None) -> T:
        """Call a function in the control namespace."""
        assert self._inside is not None
        future = self._inside.submit(function)
        process.wait_until(
            lambda: concurrent.futures.wait([future], 0.1).done, what,
            self._children, of=of or self._planner, say=self.say,
            progress=progress, interval_s=0)
        return future.result()

    def launch(self, name: str, n_vms: int, flavor_name: str,
               hints: dict[str, str] | None,
               on_count: OnCount = lambda count: None,
               hosts: Sequence[str] | None = None, project: str | None = None
               ) -> list[nova_client.Server]:
        """Create a group through Nova's API and boot its VMs.

        They boot on the hosts that Nova chose, or without Nova the controller.

        :param hints: scheduler hints; None: the controller is not told.
        :param on_count: called with the number of active servers from time to
            time.
        :param hosts: hosts to boot them on instead; without Nova only.
        :param project: project of the group; without Nova only.
        """
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        whose = {} if project is None else {'project': project}

        def create() -> list[nova_client.Server]:
            if hosts is None:
                return cloud.create_group(name, n_vms, hints or {},
                                          flavor=flavor_name, **whose)
            made = cloud.boot(name, hosts, flavor_name)
            if hints is not None:
                cloud.tell(made, name, hints, **whose)
            return made

        servers = self._ask_cloud(
            lambda note: cloud.wait_active(create(), note),
            f'{n_vms} servers for {name}', on_count)
        for server in servers:
            assert server.host is not None
            self.fabric.add_vm(server.uuid, server.host)
        self._write_ports({server.host for server in servers if server.host})
        return servers

    def ports(self, servers: nova_client.Servers
              ) -> list[fabric_module.VmPort]:
        """Return the port of each server's VM."""
        return [self.fabric.vms[server.uuid] for server in servers]

    def delete(self, servers: nova_client.Servers,
               on_count: OnCount = lambda count: None) -> None:
        """Delete servers in Nova and end their VMs.

        :param on_count: called with the number of servers that are left.
        """
        self.vacate(servers, on_count)
        for server in servers:
            self.fabric.remove_vm(server.uuid)
        self._write_ports({server.host for server in servers if server.host})

    def occupy(self, slots: Mapping[str, int]) -> list[nova_client.Server]:
        """Take slots of hosts with servers that send nothing.

        The controller hears nothing of them; without Nova only.
        """
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        return [server for host, n_slots in slots.items() if n_slots
                for server in cloud.boot(f'background-{host}', [host],
                                         flavor(n_slots))]

    def vacate(self, servers: nova_client.Servers,
               on_count: OnCount = lambda count: None) -> None:
        """Delete the servers of :meth:`occupy`."""
        self._ask_cloud(lambda note: self._cloud.delete(servers, note),
                        f'the end of {len(servers)} servers', on_count)

    def _ask_cloud(self, function: Callable[[OnCount], T], what: str,
                   on_count: OnCount = lambda count: None) -> T:
        """Call a function of the cloud inside of the control namespace.

        Counts that it reports are passed on from this thread.
        """
        counts: list[int] = []

        def progress() -> int:
            if counts:
                on_count(counts[-1])
            return counts[-1] if counts else -1

        return self.inside(lambda: function(counts.append), what,
                           self._nova, progress)

    @contextlib.contextmanager
    def without_enforcement(self) -> Iterator[None]:
        """Stop enforcement within a context: TCP shares the uplinks.

        The edge modules are suspended and their queues removed; when they
        resume, they notice and restore the queues.
        """
        for edge in self._edges.values():
            edge.popen.send_signal(signal.SIGSTOP)
        try:
            for host in self._edges:
                self.fabric.clear_uplink(host)
            yield
        finally:
            for edge in self._edges.values():
                edge.popen.send_signal(signal.SIGCONT)

    def wait_enforced(self, coflows: Iterable[
            tuple[coflow_model.Coflow, nova_client.Servers]] = ()) -> None:
        """Wait until the edges know the coflows' flows and no others.

        Flows inside of a host are in no table.

        :param coflows: each with the server of each of its VMs.
        """
        pairs: set[tuple[str, str, str]] = set()
        for coflow, servers in coflows:
            ports = self.ports(servers)
            ends = ((ports[flow.src], ports[flow.dst])
                    for flow in coflow.flows)
            pairs |= {(src.host, src.address, dst.address)
                      for src, dst in ends if src.host != dst.host}
        found: set[tuple[str, str, str]] = set()
        self._wait(lambda: self._enforced(pairs, found),
                   f'{len(pairs)} flows in the tables of all edge modules',
                   self._planner, lambda: len(found))

    def _enforced(self, pairs: set[tuple[str, str, str]],
                  found: set[tuple[str, str, str]]) -> bool:
        found.clear()
        known = self.controller_hosts()
        for host in self.bed.hosts:
            policy = self.inside(functools.partial(
                self._services.call, host_wire.POLICY, host))
            if known[host].applied_generation != policy.generation:
                return False
            found |= {(host, flow.src_ip, flow.dst_ip)
                      for flow in policy.flows}
        return found == pairs

    def _write_ports(self, hosts: set[str]) -> None:
        for host in hosts:
            services.write_ports(self.fabric, host, self._state)

    def _health(self) -> int | None:
        """Return the HTTP status of the controller's health, None without.

        A starting controller answers placements, but without a plan.
        """
        url = services.controller_url(self.fabric) + '/health'
        try:
            return self.inside(lambda: self._http.get(
                url, timeout=_REQUEST_S)).status_code
        except requests.ConnectionError:
            return None

    def _reported(self) -> set[str]:
        return {host for host, entry in self.controller_hosts().items()
                if entry.last_report is not None}

    def _wait(self, condition: Callable[[], object], what: str,
              of: process.Child | None,
              progress: Callable[[], object] | None = None,
              stall_s: float = patience.STALL_S) -> None:
        process.wait_until(condition, what, self._children, of=of,
                           say=self.say, progress=progress, stall_s=stall_s)
