# SPDX-License-Identifier: Apache-2.0

"""A testbed whose tenants announce coflows truly, wrongly, late or never."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import math
import time
import typing
import uuid

from virtco import hints
from virtco.wire import coflow_bodies
from virtco_lab.emulation import fabric
from virtco_lab.emulation import misled
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import planned_cloud
from virtco_lab.emulation import runner
from virtco_lab.emulation import starvation
from virtco_lab.emulation import testbed as testbed_module
from virtco_lab.emulation import timetable
from virtco_lab.sim import claims
from virtco_lab.sim import schemes

_SCHEME = schemes.Scheme('hinted', 'hinted', 'spread', 'mrtf')
#: Name of a coflow that is announced for a group that runs.
_TOLD = 'told'
Hosts = dict[str, tuple[str, ...]]
Groups = Sequence[nova_client.Servers]
Beside = Callable[[Sequence[Sequence[fabric.VmPort]]],
                  contextlib.AbstractContextManager[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """Result of sending the coflows.

    :ivar hosts: hosts of each coflow's VMs, by its name.
    :ivar ccts_s: CCT of each coflow.
    :ivar told_s: time at which the controller knew of each; 0: from the
        beginning.
    """

    hosts: Hosts
    ccts_s: tuple[float, ...]
    told_s: tuple[float, ...]
    usage: starvation.Usage


class Bed(testbed_module.Testbed):
    """A testbed where each coflow is a project."""

    def send(self, coflows: Sequence[claims.Coflow],
             claimed: Sequence[claims.Claim], hosts: Hosts | None = None,
             scheme: schemes.Scheme = _SCHEME,
             beside: Beside | None = None) -> Sent:
        """Launch the VMs, send all bytes, take the VMs away.

        :param hosts: hosts of the VMs; None: those that the controller
            chooses, which then hears of all coflows in time.
        :param scheme: scheme; the edges are left out where its order is fair.
        :param beside: is entered, with the ports of each coflow's VMs, while
            the bytes are sent.
        """
        self.change_settings(scheme.settings())
        groups = self._launch(coflows, claimed, hosts)
        # Edges know all pairs of a coflow without sizes.
        self.wait_enforced([
            (one.coflow if told.is_sized else claims.unsized(one.coflow),
             group) for one, claim, group in zip(coflows, claimed, groups)
            if (told := claim.at_launch()) is not None])
        job = runner.job_of(self, zip(
            (one.coflow for one in coflows), groups),
            tuple(one.start_s for one in coflows))
        told_s = [0.0 if claim.late_s is None else math.inf
                  for claim in claimed]
        done, usage, _busy = runner.send(
            self, job, scheme, beside=self._telling(
                coflows, claimed, groups, told_s, beside(list(
                    map(self.ports, groups)))
                if beside else contextlib.nullcontext()))
        self.delete([server for group in groups for server in group])
        self.wait_enforced()
        return Sent({one.coflow.name: tuple(str(server.host)
                                            for server in group)
                     for one, group in zip(coflows, groups)},
                    done.ccts_s, tuple(told_s), usage)

    def coflows(self) -> Sequence[coflow_bodies.Coflow]:
        """Return the controller's coflows."""
        return self.ask(coflow_bodies.LIST).coflows

    def _launch(self, coflows: Sequence[claims.Coflow],
                claimed: Sequence[claims.Claim], hosts: Hosts | None
                ) -> list[list[nova_client.Server]]:
        groups = []
        for one, claim in zip(coflows, claimed):
            name, at_launch = one.coflow.name, claim.at_launch()
            groups.append(self.launch(
                name, one.coflow.n_vms, testbed_module.flavor(1),
                None if at_launch is None else misled.hint(one, at_launch),
                hosts=None if hosts is None else hosts[name],
                # Nobody inherits the debts of a run before.
                project=uuid.uuid4().hex))
        return groups

    @contextlib.contextmanager
    def _telling(self, coflows: Sequence[claims.Coflow],
                 claimed: Sequence[claims.Claim], groups: Groups,
                 told_s: list[float], beside:
                 contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Tell the controller of each late coflow while the block runs.

        :param beside: is entered, too.
        """
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        began_s = time.monotonic()
        late = sorted((one.start_s + claim.late_s, number) for number, (
            one, claim) in enumerate(zip(coflows, claimed))
            if claim.late_s is not None)

        def tell(number: int) -> None:
            one, claim = coflows[number], claimed[number]
            if claim.is_launched:
                self._announce(one, claim)
            else:
                cloud.tell(groups[number], one.coflow.name, misled.hint(
                    one, claim), uuid.uuid4().hex)
            told_s[number] = time.monotonic() - began_s

        with (namespaces.executor(self.fabric.control) as pool,
              timetable.running([(at_s, functools.partial(tell, number))
                                 for at_s, number in late], pool), beside):
            yield

    def _announce(self, one: claims.Coflow, claim: claims.Claim) -> None:
        """Tell the sizes of a group that was launched without them."""
        group = one.coflow.name
        told = misled.hint(dataclasses.replace(
            one, coflow=dataclasses.replace(one.coflow, name=_TOLD)), claim)
        self._controller.call(coflow_bodies.ANNOUNCE, group, _TOLD,
                              told[hints.TM])
