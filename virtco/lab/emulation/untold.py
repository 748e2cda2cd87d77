# SPDX-License-Identifier: Apache-2.0

"""A testbed whose controller is told of coflows as their tenants please."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import itertools
import math
import threading
import time
import typing
import uuid

from virtco.lab.emulation import measure
from virtco.lab.emulation import misled
from virtco.lab.emulation import nova_client
from virtco.lab.emulation import planned_cloud
from virtco.lab.emulation import runner
from virtco.lab.emulation import scenario
from virtco.lab.emulation import starvation
from virtco.lab.emulation import testbed as testbed_module
from virtco.lab.emulation import traffic
from virtco.lab.emulation import transfers

_SCHEME = scenario.Scheme('hinted', 'hinted', 'spread', 'mrtf')
_PORT = 5001
Hosts = dict[str, tuple[str, ...]]
Groups = Sequence[Sequence[nova_client.Server]]


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """What became of the coflows.

    :ivar told_s: when the controller knew of each; 0 = from the beginning.
    """

    hosts: Hosts
    ccts_s: tuple[float, ...]
    told_s: tuple[float, ...]
    usage: starvation.Usage


class Bed(measure.Datacentre):
    """A testbed where each coflow is a project."""

    def send(self, coflows: Sequence[misled.Coflow], setting: str,
             claimed: Sequence[float], hosts: Hosts | None) -> Sent:
        """Launch the VMs, send all bytes, take the VMs away.

        :param hosts: of the VMs of which the controller hears late.
        """
        self.change_settings(_SCHEME.settings())
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        hints = [misled.hint(one, is_sized, factor)
                 for one, is_sized, factor in zip(
                     coflows, misled.are_sized(setting, coflows), claimed)]
        late_s = misled.late_s(setting)
        groups = self._launch(coflows, hints, late_s is not None, hosts)
        flows = self._specs(coflows, groups)
        self.wait_enforced(set() if late_s is not None else self._pairs(
            groups, flows, misled.are_sized(setting, coflows)))
        job = self._job(coflows, flows)
        told_s = [0.0] * len(coflows) if late_s is None else [
            math.inf] * len(coflows)
        with transfers.Transfer(job, self.config.logs / 'traffic.log',
                                self.say) as transfer:
            watch = starvation.Watch(runner.children)
            with (contextlib.nullcontext() if late_s is None
                  else self._telling(cloud, coflows, groups, hints, late_s,
                                     told_s)):
                done = transfer.run()
            usage = watch.read()
        self.delete([server for group in groups for server in group])
        self.wait_enforced(set())
        return Sent({one.coflow.name: tuple(str(server.host)
                                            for server in group)
                     for one, group in zip(coflows, groups)},
                    done.ccts_s, tuple(told_s), usage)

    def _launch(self, coflows: Sequence[misled.Coflow],
                hints: Sequence[dict[str, str]], are_late: bool,
                hosts: Hosts | None) -> list[list[nova_client.Server]]:
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        groups: list[list[nova_client.Server]] = []
        for one, hint in zip(coflows, hints):
            name = one.coflow.name
            if are_late:
                assert hosts is not None
                groups.append(cloud.boot(name, hosts[name],
                                         testbed_module.flavor(1)))
            else:
                groups.append(self.inside(functools.partial(
                    cloud.create_group, name, one.coflow.n_vms, hint,
                    flavor=testbed_module.flavor(1),
                    # Nobody inherits the debts of a run before.
                    project=uuid.uuid4().hex)))
            for server in groups[-1]:
                self.fabric.add_vm(server.uuid, str(server.host))
        self._write_ports(set(self.config.hosts))
        return groups

    @contextlib.contextmanager
    def _telling(self, cloud: planned_cloud.PlannedCloud,
                 coflows: Sequence[misled.Coflow], groups: Groups,
                 hints: Sequence[dict[str, str]], late_s: float,
                 told_s: list[float]) -> Iterator[None]:
        """Meanwhile the controller hears of each coflow so late."""
        over = threading.Event()
        began_s = time.monotonic()

        def tell() -> None:
            for number, (one, group, hint) in enumerate(
                    zip(coflows, groups, hints)):
                at_s = began_s + one.start_s + late_s
                if over.wait(min(threading.TIMEOUT_MAX, max(
                        0.0, at_s - time.monotonic()))):
                    return
                cloud.tell(group, one.coflow.name, hint, uuid.uuid4().hex)
                told_s[number] = time.monotonic() - began_s

        assert self._inside is not None
        future = self._inside.submit(tell)
        try:
            yield
        finally:
            over.set()
        future.result()

    def _job(self, coflows: Sequence[misled.Coflow],
             flows: Sequence[traffic.FlowSpec]) -> traffic.Job:
        ports = {port.namespace: port for port in self.fabric.vms.values()}
        self.fabric.introduce({(
            ports[flow.src_namespace], ports[flow.dst_namespace])
            for flow in flows})
        return traffic.Job(
            tuple(one.start_s for one in coflows), tuple(flows),
            window_bytes=traffic.window_bytes(
                flows, {name: port.host for name, port in ports.items()},
                self.config.rate_bps))

    def _specs(self, coflows: Sequence[misled.Coflow],
               groups: Groups
               ) -> list[traffic.FlowSpec]:
        found = []
        for number, (one, group) in enumerate(zip(coflows, groups)):
            vms = [self.fabric.vms[server.uuid] for server in group]
            for flow in one.coflow.flows:
                src, dst = vms[flow.src], vms[flow.dst]
                found.append(traffic.FlowSpec(
                    number, src.namespace, dst.namespace, dst.address, _PORT,
                    max(1, round(flow.size_bytes)),
                    src.host if src.host == dst.host else None))
        return found

    def _pairs(self, groups: Groups, flows: Sequence[traffic.FlowSpec],
               are_sized: Sequence[bool]) -> set[tuple[str, str, str]]:
        """What the edges should know: of an unsized coflow all pairs."""
        ports = {port.namespace: port for port in self.fabric.vms.values()}
        pairs = [(ports[flow.src_namespace], ports[flow.dst_namespace])
                 for flow in flows if are_sized[flow.coflow]]
        for group, is_sized in zip(groups, are_sized):
            if not is_sized:
                pairs += itertools.permutations(
                    [self.fabric.vms[server.uuid] for server in group], 2)
        return {(src.host, src.address, dst.address) for src, dst in pairs
                if src.host != dst.host}
