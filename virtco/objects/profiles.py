# SPDX-License-Identifier: Apache-2.0

"""Bytes per VM pair, group and hour: counted, kept and read."""

from collections.abc import Callable

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import units
from virtco.db import profile_rows as db_profiles
from virtco.profiles import learning
from virtco.profiles import pairs
from virtco.profiles import prediction
from virtco.state import state as states
from virtco.wire import profile as wire

#: Time between two writes; bytes counted since the last one are lost when the
#: leader ends without warning.
FLUSH_S = 30.0
#: Hours of groups kept for one project, the latest: 28 days of seven groups.
MAX_ROWS = 5000
#: Writes from one look for rows that are too old to the next.
PURGE_EVERY = 100
#: Pairs of a group, the largest, whose next hour is told: 2 ms each.
MOST_PREDICTED = 200


class Profiles:
    """Stores the bytes that the live state counted, and answers questions."""

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 clock: Callable[[], float]):
        self._conf = conf.profiles
        self._state = state
        self._clock = clock
        self._n_writes = 0

    def _hour(self) -> int:
        return int(self._clock() // units.SECONDS_PER_HOUR)

    def flush(self) -> None:
        """Store the bytes that were counted since the last time."""
        counted = self._state.live.take_profiles()
        if not self._conf.keep_days:
            return
        purges = self._n_writes % PURGE_EVERY == 0
        if not counted and not purges:
            return

        def save(session: orm.Session) -> None:
            db_profiles.add(session, self._hour(), counted, MAX_ROWS)
            if purges:
                db_profiles.purge(session, self._hour() - (
                    prediction.HOURS_PER_DAY * self._conf.keep_days))

        try:
            self._state.database.as_leader(save)
        except Exception:
            self._state.live.give_back_profiles(counted)
            raise
        self._n_writes += 1

    def groups(self, project_id: str | None) -> list[wire.Counted]:
        """List every group with a profile, of one project or all."""
        with self._state.database.reader() as session:
            return [wire.Counted(
                group_id=group_id, project_id=project, group_name=name,
                app=app or None, n_vms=n_vms, first_hour=_start_s(first),
                last_hour=_start_s(last), n_hours=count)
                    for group_id, project, name, app, n_vms, first, last,
                    count in db_profiles.list_groups(session, project_id)]

    def show(self, project_id: str | None, group: str) -> wire.Profile:
        """Show the bytes a group's pairs sent and a forecast of an hour.

        :param group: id or name; of several of a name the latest.
        :raises virtco.exception.NotFound:
        """
        with self._state.database.reader() as session:
            group_id = db_profiles.find(session, project_id, group)
            rows = ([] if group_id is None
                    else db_profiles.hours(session, group_id))
        if not rows:
            raise exception.NotFound(what='Profile of group', id=group)
        last, now = rows[-1], self._hour()
        by_pair: dict[pairs.Pair, dict[int, float]] = {}
        for row in rows:
            for pair, size_bytes in pairs.decode(row.pairs).items():
                hours = by_pair.setdefault(pair, {})
                if size_bytes != pairs.UNSEEN:
                    hours[row.hour] = size_bytes
        # The hour that is under way is no history yet.
        first, until = rows[0].hour, max(rows[0].hour + 1, now)
        told = set(sorted(by_pair, key=lambda pair: -sum(
            by_pair[pair].values()))[:MOST_PREDICTED])
        launch = learning.Launch(last.n_vms, pairs.merged(
            *(pairs.decode(row.pairs) for row in rows)))
        learned = learning.learn([launch], last.n_vms)
        return wire.Profile(
            group_id=last.group_id, project_id=last.project_id,
            group_name=last.group_name, app=last.app or None,
            n_vms=last.n_vms, n_hours=len(rows),
            size_bytes=launch.size_bytes,
            tm=learned.tm if learned is not None else None,
            pattern=learned.how if learned is not None else None,
            next_hour=_predicted({
                hour: sum(found.get(hour, 0.0)
                          for found in by_pair.values())
                for hour in range(first, until)}, first, until),
            pairs=[wire.ProfiledPair(
                src=src, dst=dst, size_bytes=sum(found.values()),
                is_seen=bool(found),
                hours=[wire.Hour(_start_s(hour), size)
                       for hour, size in sorted(found.items())],
                next_hour=_predicted(found, first, until)
                if (src, dst) in told else None)
                for (src, dst), found in sorted(by_pair.items())])

    def apps(self, project_id: str | None) -> list[wire.Launched]:
        """List applications with the number and the last hour of launches."""
        with self._state.database.reader() as session:
            return [wire.Launched(project_id=project, app=app,
                                  n_launches=count, last_hour=_start_s(last))
                    for project, app, count, last
                    in db_profiles.list_apps(session, project_id)]

    def app(self, project_id: str, app: str, n_vms: int | None
            ) -> wire.App:
        """Show the matrix that the next launch of an application gets.

        :param n_vms: None = as many as the last one had.
        :raises virtco.exception.NotFound:
        """
        with self._state.database.reader() as session:
            launches = db_profiles.launches(session, project_id, app)
        if not launches:
            raise exception.NotFound(what='Application', id=app)
        wanted = n_vms or launches[0].n_vms
        found = learning.learn(launches, wanted)
        return wire.App(
            project_id=project_id, app=app, n_vms=wanted,
            launches=[wire.Launch(launch.n_vms, launch.size_bytes)
                      for launch in launches],
            tm=found.tm if found is not None else None,
            size_bytes=found.size_bytes if found is not None else None,
            how=found.how if found is not None else
            'no pattern is recognised that could be scaled')

    def forget_app(self, project_id: str, app: str) -> None:
        """Forget an application of a project.

        :raises virtco.exception.NotFound:
        """
        if not self._state.database.retried(
                lambda session: db_profiles.forget_app(session, project_id,
                                                       app)):
            raise exception.NotFound(what='Application', id=app)


def _start_s(hour: int) -> float:
    """Convert an hour to seconds since the epoch."""
    return float(hour * units.SECONDS_PER_HOUR)


def _predicted(hours: dict[int, float], first: int, until: int
               ) -> wire.Predicted:
    return prediction.predict(prediction.series(hours, first, until))
