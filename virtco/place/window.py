# SPDX-License-Identifier: Apache-2.0

"""New groups that ask shortly after each other are planned together.

The first one waits ``[placement] window_ms`` for others, and its thread plans
all of them. Each goes on with its part under its own deadline. Whatever goes
wrong, there is time left to plan each alone.
"""

from collections.abc import Callable
import dataclasses
import functools
import logging
import threading

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco import units
from virtco.model import snapshot
from virtco.objects import settings
from virtco.place import deadline as deadlines
from virtco.solver import planner
from virtco.solver import together

LOG = logging.getLogger(__name__)

#: Groups that are planned together at most.
MOST_GROUPS = 8
#: Share of ``budget_s`` that is kept for planning a group alone.
ALONE_SHARE = 0.5
#: Share of the time left for planning together: a budget is overrun a bit.
TOGETHER_SHARE = 0.9

# Project and name.
Key = tuple[str, str]


@dataclasses.dataclass(eq=False)
class _Entry:
    """A group that waits.

    :ivar gone: set when it is committed, or will not be.
    """

    problem: snapshot.PlacementProblem
    deadline: deadlines.Deadline
    part: together.Part | None = None
    gone: threading.Event = dataclasses.field(
        default_factory=threading.Event)


@dataclasses.dataclass(eq=False)
class _Round:
    """Groups that wait together; ``outcome`` has their plans."""

    entries: list[_Entry] = dataclasses.field(default_factory=list)
    full: threading.Event = dataclasses.field(
        default_factory=threading.Event)
    over: threading.Event = dataclasses.field(
        default_factory=threading.Event)
    outcome: str = 'late'


class Window:
    """Joint planning of new groups that ask within ``window_ms``.

    :param wait: waits for an event, at most the given seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts, settings: settings.Settings,
                 metrics: metrics.Metrics, pace: deadlines.Pace,
                 wait: Callable[[threading.Event, float], bool] = (
                     threading.Event.wait)):
        self._conf = conf
        self._settings = settings
        self._metrics = metrics
        self._pace = pace
        self._wait = wait
        self._lock = threading.Lock()
        self._open: _Round | None = None
        self._waiting: dict[Key, _Entry] = {}

    def plan(self, key: Key, problem: snapshot.PlacementProblem,
             deadline: deadlines.Deadline) -> together.Part | None:
        """Return the group's part of a joint plan; None: plan it alone.

        :raises virtco.exception.Conflict: when another instance of the same
            new group was faster.
        """
        window_s = units.ms_to_s(self._conf.placement.window_ms)
        if (not window_s or self._settings['objective']
                == snapshot.Objective.ISOLATED
                or deadline.spent_s()['hold'] or self._time_s(deadline)
                < window_s + self._conf.placement.budget_s):
            return None
        deadline.enter('hold')
        entry = _Entry(problem, deadline)
        with self._lock:
            first = self._waiting.setdefault(key, entry)
            if first is entry:
                leads, group = self._join(entry)
        if first is not entry:
            first.gone.wait(self._time_s(deadline))
            raise exception.Conflict(what='group', id=key[1])
        if leads:
            self._wait(group.full, window_s)
            with self._lock:
                if self._open is group:
                    self._open = None
            deadline.enter('solve')
            self._plan(group)
            group.over.set()
        else:
            group.over.wait(self._time_s(deadline))
            deadline.enter('solve')
        self._metrics.window_groups.labels(group.outcome).inc()
        return entry.part

    def leave(self, deadline: deadlines.Deadline) -> None:
        """Wake those who wait for this placement's group."""
        if not self._waiting:
            return
        with self._lock:
            for key, entry in list(self._waiting.items()):
                if entry.deadline is deadline:
                    del self._waiting[key]
                    entry.gone.set()

    def _join(self, entry: _Entry) -> tuple[bool, _Round]:
        """Enter the open round; return whether the entry leads it."""
        group = self._open
        leads = group is None
        if group is None:
            group = self._open = _Round()
        group.entries.append(entry)
        if len(group.entries) == MOST_GROUPS:
            self._open = None
            group.full.set()
        return leads, group

    def _time_s(self, deadline: deadlines.Deadline) -> float:
        """Return the seconds left until it has to be planned alone."""
        alone_s = ALONE_SHARE * float(self._conf.placement.budget_s)
        return max(0.0, deadline.left_s() - alone_s
                   - self._pace.expected_s('rank', 'commit'))

    def _plan(self, group: _Round) -> None:
        """Plan a round's groups together, or note why each goes alone."""
        # A group whose client is gone would leave the others no time.
        entries = [entry for entry in group.entries
                   if not entry.deadline.is_abandoned()]
        if len(entries) <= 1:
            group.outcome = 'alone'
            return
        budget_s = min(len(entries) * self._conf.placement.budget_s,
                       TOGETHER_SHARE * min(self._time_s(entry.deadline)
                                            for entry in entries))
        try:
            with self._metrics.plan_seconds.time():
                parts = together.plan(
                    [entry.problem for entry in entries],
                    objective=snapshot.Objective(
                        self._settings['objective']),
                    planner_name=self._settings['planner'],
                    budget_s=budget_s, plan_one=functools.partial(
                        planner.plan, is_cancelled=lambda: all(
                            entry.deadline.is_abandoned()
                            for entry in entries)))
        except exception.PlacementInfeasible:
            group.outcome = 'refused'
            LOG.info('%d groups do not fit together; each is planned alone.',
                     len(entries))
            return
        except Exception:
            group.outcome = 'failed'
            LOG.exception('%d groups could not be planned together; each is '
                          'planned alone.', len(entries))
            return
        group.outcome = 'together'
        for entry, part in zip(entries, parts):
            entry.part = part
            self._metrics.plans.labels(part.plan.relaxed).inc()
        LOG.info('Planned %d groups together in at most %.3f s.',
                 len(entries), budget_s)
