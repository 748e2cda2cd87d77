# SPDX-License-Identifier: Apache-2.0

"""The door of the room: policies for edge modules, and trains to send."""

from collections.abc import Callable
from collections.abc import Mapping
import time

from oslo_config import cfg

from virtco import metrics
from virtco import periodic
from virtco.decide import checks
from virtco.decide import loop
from virtco.decide import measurement_orders as orders
from virtco.decide import probes
from virtco.decide import publisher
from virtco.decide import waiting
from virtco.model import live
from virtco.objects import objects as catalogue
from virtco.state import state as states


class Decide:
    """The work of the leader: policies, measurements and checks."""

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 objects: catalogue.Objects, publisher: publisher.Publisher,
                 counts: metrics.Metrics, turns: periodic.Turns,
                 clock: Callable[[], float] = time.time):
        self.publisher = publisher
        self.loop = loop.Loop(conf, state, objects.settings, publisher, counts,
                              clock)
        self.prober = probes.Prober(conf, state.rates, state.live.measurable,
                                    counts, clock)
        self.checks = checks.Checks(conf, self.prober, state.live,
                                    objects.findings.conclude, clock)
        self.orders = orders.Orders(conf, state, self.checks, self.prober,
                                    turns, clock)
        state.on_change.append(self.loop.notify)

    def start(self) -> None:
        self.loop.run_once()
        self.loop.start()
        self.orders.start()

    def lead(self, leads: Callable[[], bool]) -> None:
        """Publish computed policies from here on.

        :param leads: whether it still holds.
        """
        self.loop.leads = leads
        self.orders.lead()
        self.loop.notify(True)

    def stop(self) -> None:
        self.checks.stop()
        self.loop.stop()

    def is_alive(self) -> bool:
        return self.loop.is_alive()

    @property
    def schedule(self) -> live.Schedule:
        """The newest."""
        return self.loop.policies.schedule

    def waiting(self) -> Mapping[str, waiting.Waiting]:
        """Return the port where each coflow waits in the latest schedule."""
        return self.loop.policies.waiting
