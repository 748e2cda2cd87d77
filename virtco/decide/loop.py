# SPDX-License-Identifier: Apache-2.0

"""The scheduler loop: computes the policies whenever it is called for."""

from collections.abc import Callable
from collections.abc import Mapping
import logging
import math
import threading
import time

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco import own_policies
from virtco import periodic
from virtco.decide import lateness
from virtco.decide import policy_documents
from virtco.decide import publisher
from virtco.model import states
from virtco.objects import settings as operators
from virtco.state import schedule_input
from virtco.state import state as known
from virtco.state import summary

LOG = logging.getLogger(__name__)
#: Longest pause for placements that are under way.
GIVE_WAY_S = 0.5


class Loop(threading.Thread):
    """The scheduler's thread, woken by changes and by time."""

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 settings: operators.Settings,
                 publisher: publisher.Publisher, metrics: metrics.Metrics,
                 clock: Callable[[], float] = time.time):
        super().__init__(name='scheduler', daemon=True)
        self._conf = conf.scheduler
        self._state = state
        self._settings = settings
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._wake = threading.Condition()
        self._urgent = True
        self._stopping = False
        self._has_led = True
        self._is_blind = False
        #: Whether this process leads; if not, its policies are only looked at.
        self.leads: Callable[[], bool] = lambda: True
        #: Whether placements are under way, which computations give way to.
        self.is_placing: Callable[[], bool] = lambda: False
        #: Whether one of them does more than solve in the next seconds.
        self.is_answering: Callable[[float], bool] = lambda within_s: False
        #: The newest.
        self.policies = policy_documents.none()
        self._lateness = lateness.Lateness(
            1 + conf.scheduler.wire_overhead_fraction)

    def notify(self, urgent: bool) -> None:
        """Wake the loop after a change if it is urgent."""
        if urgent:
            with self._wake:
                self._urgent = True
                self._wake.notify_all()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self.is_alive():
            self.join(5)

    def run(self) -> None:
        pause_s, took_s = self._conf.interval_s, 0.0
        while True:
            with self._wake:
                if not (self._urgent or self._stopping):
                    self._wake.wait(wait_s(
                        pause_s, self.policies.next_check_s, self._clock()))
                if self._stopping:
                    return
            periodic.give_way(self.is_answering, took_s)
            started = _spent_s()
            try:
                self.run_once()
            except Exception:
                # A loop that died would leave all edges with old policies.
                self._metrics.loop_failures.labels('scheduler').inc()
                LOG.exception('Could not compute the policies.')
                time.sleep(self._conf.interval_s)
            took_s = _spent_s() - started
            pause_s = unasked_after_s(self._conf.interval_s, took_s)
            time.sleep(rest_s(took_s, self.is_placing()))

    def run_once(self) -> None:
        """Compute and publish."""
        with self._wake:
            self._urgent = False
        self._refresh()
        if not self.leads():
            self._has_led = False
            self.look()
            return
        if not self._has_led:
            # Policies computed without leading were never published.
            self._has_led = True
            self.policies = policy_documents.none()
        with self._metrics.resolve_seconds.time():
            changed = self.publish(self._clock())
        for coflow in changed:
            LOG.info('Coflow %s (%s) is %s, iteration %d.', coflow.coflow_id,
                     coflow.name, coflow.state, coflow.iteration)
            if coflow.state == states.CoflowState.DONE:
                self._note_end(coflow)

    def _refresh(self) -> None:
        """Read changes, or go on without them; a leader without its database
        does not wait for each failure.
        """
        try:
            if self.leads() and not self._state.has_database():
                raise exception.DatabaseUnavailable(
                    why='it has not for a lease')
            self._state.refresh()
        except exception.VirtcoException as error:
            if not self._is_blind:
                LOG.warning('%s: %s', 'Policies follow reports alone'
                            if self.leads() else
                            'Schedules are shown by what was read before',
                            error)
            self._is_blind = True
        else:
            self._is_blind = False

    def _note_end(self, coflow: summary.Status) -> None:
        """Count and log a coflow's end, compared with its plan."""
        self._metrics.coflow_ends.inc()
        if self._settings.is_shadow:
            note_shadow(coflow, self._metrics)
        span, planned_s = coflow.span, coflow.planned_cct_s
        if span is None:  # all of it stayed within hosts
            return
        LOG.info('Coflow %s took %.3f s, plus or minus %.3f s; planned: %s.',
                 coflow.coflow_id, span.cct_s, span.cct_error_s,
                 f'{planned_s:.3f} s' if planned_s is not None else 'unknown')
        self._metrics.coflow_cct_seconds.observe(span.cct_s)
        if planned_s:
            self._metrics.coflow_cct_ratio.observe(span.cct_s / planned_s)

    def look(self) -> None:
        """Compute the leader's likely schedule, for answers from here."""
        self.policies = policy_documents.compute(
            self._state.live.snapshot(self.options(), self._clock()),
            self.policies)

    def publish(self, now_s: float) -> list[summary.Status]:
        """Compute and publish policies; return the coflows whose state
        changed.
        """
        options = self.options()
        live = self._state.live
        live.count_pairs(options.is_fair)
        changed = live.advance(now_s)
        seen = live.snapshot(options, now_s)
        found = policy_documents.compute(seen, self.policies,
                                         self._lateness.follow(seen))
        live.keep_minors(found.minors)
        live.keep_limits(found.limits())
        # A host that was forgotten and came back before now has the policy
        # that it had, and needs it again.
        due = dict.fromkeys((*found.changed,
                             *self._publisher.lacked(found.of_host)))
        n_changed = self._publisher.publish({host: found.of_host[host]
                                             for host in due})
        # Hosts may have been forgotten while this was computed.
        self._publisher.forget({host for host in due
                                if not live.is_known(host)})
        # Last, as the next changes are those since the published ones.
        self.policies = found
        self._metrics.policy_changes.inc(n_changed)
        return changed

    def options(self) -> schedule_input.Options:
        """Return the operator's present choices."""
        return options(self._conf, self._settings.get(),
                       self._settings.is_shadow)


def _spent_s() -> float:
    """Return the processor time of this thread, and of the own policy's."""
    return time.thread_time() + own_policies.Guarded.spent_s


def wait_s(pause_s: float, next_check_s: float, now_s: float) -> float:
    """Wait no longer than until a coflow has waited for theta, or a training
    job is late.
    """
    return max(0.0, min(pause_s, next_check_s - now_s))


def rest_s(took_s: float, is_placing: bool) -> float:
    """Limit requested computations to half a core, and to a tenth during
    placements: the rest is for those who report, ask and are answered.
    """
    return max(took_s, min(GIVE_WAY_S, 9 * took_s)) if is_placing else took_s


def unasked_after_s(interval_s: float, took_s: float) -> float:
    """Limit unrequested computations to 5 % of a core."""
    return max(interval_s, 19 * took_s)


def options(conf: cfg.ConfigOpts, chosen: Mapping[str, str],
            is_shadow: bool) -> schedule_input.Options:
    """Combine configured options with those set at run time.

    :param conf: options of the group ``[scheduler]``.
    :param chosen: while the controller runs.
    """
    order = schedule_input.FAIR if is_shadow else chosen['order']
    return schedule_input.Options(
        order=order,
        own=own_policies.installed() if order == own_policies.OWN else None,
        work_conserving=chosen['ceil'] == 'link',
        theta_s=conf.theta_s or math.inf, beta=float(conf.beta),
        quiet_s=conf.quiet_s, policy_ttl_s=conf.policy_ttl_s,
        protect_receivers=conf.protect_receivers,
        limit_senders=conf.limit_senders,
        default_share=conf.default_share)


#: A difference below this part is none.
SHADOW_TOLERANCE = 0.05


def note_shadow(coflow: summary.Status, counts: metrics.Metrics) -> None:
    """Compare the measured CCT of Nova's hosts and TCP's sharing with the
    planned one.

    Bytes that stayed within hosts take no time.
    """
    planned_s = coflow.planned_cct_s
    if planned_s is None:
        return
    took_s = coflow.span.cct_s if coflow.span is not None else 0.0
    saved_s = took_s - planned_s
    if abs(saved_s) <= SHADOW_TOLERANCE * max(took_s, planned_s):
        outcome = 'alike'
    else:
        outcome = 'faster' if saved_s > 0 else 'slower'
    counts.shadow_coflows.labels(outcome).inc()
    if saved_s > 0:
        counts.shadow_saved_seconds.inc(saved_s)
    else:
        counts.shadow_lost_seconds.inc(-saved_s)
    LOG.info('Shadow mode: coflow %s (%s) took %.3f s, planned were %.3f s: '
             '%.3f s would have been %s.', coflow.coflow_id, coflow.name,
             took_s, planned_s, abs(saved_s),
             'saved' if saved_s > 0 else 'lost')
