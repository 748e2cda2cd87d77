# SPDX-License-Identifier: Apache-2.0

"""Hints of tenants about a group of servers, read from Nova's hints.

The keys are ``virtco:coflow``, ``virtco:tm`` (or its pieces ``virtco:tm.0``,
``virtco:tm.1``, ...), ``virtco:index``, ``virtco:tm_ref``, ``virtco:within``,
``virtco:spread``, ``virtco:app``, ``virtco:app_refuse``, ``virtco:preflight``
and ``virtco:deadline``, as scheduler hints or as server metadata; a scheduler
hint wins over metadata. Text comes
from tenants: :func:`parse` answers any input within the time and memory that
:class:`Limits` allows, and an offence is always a
:class:`virtco.exception.HintInvalid`. Only the standard library is imported,
since Nova's scheduler loads this module.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import hashlib
import math
import re
from typing import Any

from virtco import hint_encoding
from virtco import hint_matrix
from virtco.model import coflow as coflow_model

PREFIX = 'virtco:'
COFLOW = 'virtco:coflow'
TM = hint_matrix.TM
INDEX = 'virtco:index'
TM_REF = 'virtco:tm_ref'
WITHIN = 'virtco:within'
SPREAD = 'virtco:spread'
APP = 'virtco:app'
APP_REFUSE = 'virtco:app_refuse'
PREFLIGHT = 'virtco:preflight'
DEADLINE = 'virtco:deadline'
KEYS = (COFLOW, TM, INDEX, TM_REF, WITHIN, SPREAD, APP, APP_REFUSE, PREFLIGHT,
        DEADLINE)

#: Longest time to a deadline, a year.
MAX_DEADLINE_S = 366 * 86400.0

Limits = hint_matrix.Limits

#: Nova's bounds on server metadata.
METADATA_VALUE_CHARS = 255
METADATA_ITEMS = 128

_WISH = re.compile(r'([A-Za-z0-9._-]{1,64})(?::(required|preferred))?'
                   r'(?::skew=([0-9]{1,4}))?')
_CHUNK = re.compile(r'virtco:tm\.([0-9]{1,4})')


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """A level of the topology, such as ``rack``.

    :ivar required: rather no plan than one without it.
    :ivar skew: VMs that a switch may have beyond its even share.
    """

    level: str
    required: bool = False
    skew: int = 0

    def __str__(self) -> str:
        return (f'{self.level}:{"required" if self.required else "preferred"}'
                + (f':skew={self.skew}' if self.skew else ''))


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """Where a group would like to be.

    :ivar within: all of it below one switch of that level.
    :ivar spread: evenly below as many switches of that level as there are.
    """

    within: Wish | None = None
    spread: Wish | None = None

    def __bool__(self) -> bool:
        return self.within is not None or self.spread is not None

    @property
    def required(self) -> 'Wishes':
        """Wishes that are required."""
        return Wishes(*(one if one is not None and one.required else None
                        for one in (self.within, self.spread)))


@dataclasses.dataclass(frozen=True, slots=True)
class App:
    """An application that is launched again and again.

    :ivar refuses: whether learned traffic shall not be used.
    """

    name: str
    refuses: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """When a group shall have sent all of its bytes; one of the two.

    :ivar after_s: seconds after the launch.
    :ivar at_s: seconds since the epoch.
    """

    after_s: float | None = None
    at_s: float | None = None

    def due_s(self, launched_s: float) -> float:
        """Return the time of the deadline, in seconds since the epoch.

        :param launched_s: time at which the group was launched.
        """
        if self.at_s is not None:
            return self.at_s
        assert self.after_s is not None
        return launched_s + self.after_s

    def __str__(self) -> str:
        if self.at_s is not None:
            return datetime.datetime.fromtimestamp(
                self.at_s, datetime.UTC).isoformat()
        return repr(self.after_s)


@dataclasses.dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of a hint other than its matrix.

    :ivar coflow_name: name of the group, unique within the project.
    :ivar index: this server's row; None = its ``launch_index``.
    :ivar tm_ref: id of a matrix registered through the API, or None.
    :ivar preflight: the group's hosts should be checked.
    :ivar deadline: deadline that shall be promised, if it can be.
    """

    coflow_name: str
    index: int | None = None
    tm_ref: str | None = None
    wishes: Wishes = Wishes()
    app: App | None = None
    preflight: bool = False
    deadline: Deadline | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Hint(_Terms):
    """A valid hint.

    :ivar coflows: its matrices; empty when the hint only joins a group or
        names a registered matrix.
    """

    coflows: tuple[coflow_model.Coflow, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Outline(_Terms):
    """A hint whose matrix was not read yet.

    :ivar matrix_text: text of the matrix as the tenant wrote it, or None.
    """

    matrix_text: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the matrix's text; empty when the hint holds none."""
        return ('' if self.matrix_text is None else hashlib.sha256(
            self.matrix_text.encode('utf-8', 'replace')).hexdigest())

    def read(self, limits: Limits = Limits()) -> Hint:
        """Parse the matrix and check the index; return the whole hint.

        :raises virtco.exception.HintInvalid:
        """
        coflows = () if self.matrix_text is None else (
            hint_matrix.parse_matrix_text(self.matrix_text, self.coflow_name,
                                          limits))
        if self.index is not None and coflows:
            _index(self.index, coflows[0].n_vms)
        return Hint(coflows=coflows, **{
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(_Terms)})


def select(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Select the ``virtco:`` entries of a mapping; unwrap one-element lists.
    """
    return {key: value[0] if isinstance(value, list | tuple)
            and len(value) == 1 else value
            for key, value in (values or {}).items()
            if isinstance(key, str) and key.startswith(PREFIX)}


def parse(hints: Mapping[str, Any] | None,
          metadata: Mapping[str, Any] | None = None,
          limits: Limits = Limits()) -> Hint | None:
    """Read scheduler hints and server metadata.

    :param hints: values are text or, as Nova keeps them, lists of one text.
    :returns: None when neither holds any ``virtco:`` key.
    :raises virtco.exception.HintInvalid: naming field, value and limit.
    """
    found = outline(hints, metadata, limits)
    return found.read(limits) if found is not None else None


def outline(hints: Mapping[str, Any] | None,
            metadata: Mapping[str, Any] | None = None,
            limits: Limits = Limits()) -> Outline | None:
    """Read all but the matrix, as :func:`parse`.

    :raises virtco.exception.HintInvalid: naming field, value and limit.
    """
    values = _merge(_checked(hints, 'scheduler hints'),
                    _checked(metadata, 'metadata'))
    if not values:
        return None
    name = hint_matrix.as_name(COFLOW, values.get(COFLOW), limits)
    tm_ref = text = None
    if TM_REF in values:
        if TM in values:
            hint_matrix.refuse(TM_REF, values[TM_REF],
                               f'nothing beside {TM}')
        tm_ref = hint_matrix.as_name(TM_REF, values[TM_REF], limits)
    elif TM in values:
        text = hint_matrix.as_text(TM, values[TM])
    index = (_index(values[INDEX], limits.max_vms) if INDEX in values
             else None)
    return Outline(name, index, tm_ref, Wishes(
        *(wish(key, values[key]) if key in values else None
          for key in (WITHIN, SPREAD))), _app(values, limits),
        _flag(PREFLIGHT, values),
        deadline(values[DEADLINE]) if DEADLINE in values else None, text)


def wants_preflight(hints: Mapping[str, Any] | None,
                    metadata: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a valid hint asks for a check of the hosts."""
    return _flag(PREFLIGHT, _merge(select(hints), select(metadata)))


def text_of_matrix(hints: Mapping[str, Any]) -> str:
    """Return the text of ``virtco:tm``, its pieces put together."""
    return hint_matrix.as_text(TM, _joined(select(hints))[TM])


def encode(hint: Hint) -> dict[str, str]:
    """Encode a hint as scheduler hints that :func:`parse` reads back."""
    matrix = None
    if hint.coflows and hint.tm_ref is None:
        matrix = hint_encoding.encode_matrix(hint.coflows, hint.coflow_name)
    values = {
        COFLOW: hint.coflow_name, TM_REF: hint.tm_ref, TM: matrix,
        INDEX: hint.index, WITHIN: hint.wishes.within,
        SPREAD: hint.wishes.spread, APP: hint.app and hint.app.name,
        APP_REFUSE: 'true' if hint.app and hint.app.refuses else None,
        PREFLIGHT: 'true' if hint.preflight else None,
        DEADLINE: hint.deadline}
    return {key: str(value) for key, value in values.items()
            if value is not None}


def encode_metadata(hint: Hint, text: str = '') -> dict[str, str]:
    """Encode a hint as server metadata that :func:`parse` reads back.

    :param text: text of the matrix, if not as :func:`encode` spells it.
    :raises virtco.exception.HintInvalid: when Nova's metadata cannot hold it.
    """
    values = encode(hint)
    text = text or values.get(TM, '')
    if TM in values:
        values[TM] = text
    if len(text) > METADATA_VALUE_CHARS:
        del values[TM]
        for start in range(0, len(text), METADATA_VALUE_CHARS):
            values[f'{TM}.{start // METADATA_VALUE_CHARS}'] = (
                text[start:start + METADATA_VALUE_CHARS])
    if len(values) > METADATA_ITEMS:
        hint_matrix.refuse(TM, text,
                           f'at most {METADATA_ITEMS} metadata items of '
                           f'{METADATA_VALUE_CHARS} characters')
    return values


def _checked(values: Any, what: str) -> dict[str, Any]:
    """Select virtco's keys, and refuse an unknown one among them."""
    if values is not None and not isinstance(values, Mapping):
        hint_matrix.refuse(what, values, 'an object of keys with values')
    found = select(values)
    for key in found:
        if key not in KEYS and not _CHUNK.fullmatch(key):
            hint_matrix.refuse(
                hint_matrix.shorten(key), found[key],
                f'one of the keys {", ".join(KEYS[:-1])} or {KEYS[-1]}')
    return found


def _merge(hints: dict[str, Any], metadata: dict[str, Any]
           ) -> dict[str, Any]:
    """Merge hints and metadata; metadata add nothing to a hint's matrix."""
    hints = _joined(hints)
    if TM in hints or TM_REF in hints:
        metadata = {key: value for key, value in metadata.items()
                    if key in (COFLOW, INDEX)}
    return {**_joined(metadata), **hints}


def _joined(values: dict[str, Any]) -> dict[str, Any]:
    """Put the pieces ``virtco:tm.0``, ... together as ``virtco:tm``."""
    pieces = {int(match.group(1)): key for key in values
              if (match := _CHUNK.fullmatch(key))}
    if not pieces:
        return values
    if TM in values:
        hint_matrix.refuse(TM, values[TM],
                           f'either {TM} or its pieces {TM}.0, ...')
    for number in range(len(pieces)):
        if pieces.get(number) != f'{TM}.{number}':
            hint_matrix.refuse(
                f'{TM}.{number}', None,
                f'{len(pieces)} pieces numbered from 0 without a gap')
    text = ''.join(hint_matrix.as_text(pieces[number], values[pieces[number]])
                   for number in range(len(pieces)))
    rest = {key: value for key, value in values.items()
            if not _CHUNK.fullmatch(key)}
    return {**rest, TM: text}


def wish(key: str, value: Any) -> Wish:
    """Parse a wish, such as ``rack:required``.

    :raises virtco.exception.HintInvalid:
    """
    text = hint_matrix.as_text(key, value)
    spreads = key.removeprefix('virtco:') == 'spread'
    found = _WISH.fullmatch(text)
    if found is None or (found[3] and not spreads):
        hint_matrix.refuse(
            key, text, 'a level such as rack, rack:required or rack:preferred'
            + (', then :skew=1 or more' if spreads else ''))
    return Wish(found[1], found[2] == 'required', int(found[3] or 0))


def deadline(value: Any) -> Deadline:
    """Read seconds after the launch, or a time as ISO 8601.

    :raises virtco.exception.HintInvalid:
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    text = hint_matrix.as_text(DEADLINE, value).strip()
    try:
        after_s = float(text)
    except ValueError:
        return Deadline(at_s=_time_s(text))
    if not (math.isfinite(after_s) and 0 < after_s <= MAX_DEADLINE_S):
        hint_matrix.refuse(DEADLINE, text, 'a number of seconds above 0 and '
                           f'at most {MAX_DEADLINE_S:g} after the launch')
    return Deadline(after_s=after_s)


def _time_s(text: str) -> float:
    """Parse a time with its offset from UTC to seconds since the epoch."""
    try:
        at = datetime.datetime.fromisoformat(text)
        if at.tzinfo is not None and at.timestamp() >= 0:
            # Its date in UTC may be beyond the last one, and is shown.
            datetime.datetime.fromtimestamp(at.timestamp(), datetime.UTC)
            return at.timestamp()
    except (ValueError, OverflowError):
        pass
    hint_matrix.refuse(DEADLINE, text, (
        'a number of seconds after the launch, or a time as ISO 8601 with '
        'its offset from UTC, such as 2030-01-31T12:00:00Z'))


def _app(values: Mapping[str, Any], limits: Limits) -> App | None:
    """Read the name of an application, if any."""
    refuses = _flag(APP_REFUSE, values)
    if APP not in values:
        if APP_REFUSE in values:
            hint_matrix.refuse(APP_REFUSE, values[APP_REFUSE],
                               f'nothing without {APP}')
        return None
    return App(hint_matrix.as_name(APP, values[APP], limits), refuses)


def _flag(key: str, values: Mapping[str, Any]) -> bool:
    value = values.get(key, 'false')
    if isinstance(value, bool):
        return value
    if value not in ('true', 'false'):
        hint_matrix.refuse(key, value, 'true or false')
    return bool(value == 'true')


def _index(value: Any, n_vms: int) -> int:
    text = hint_matrix.as_text(INDEX, value)
    if not re.fullmatch('[0-9]{1,9}', text) or int(text) >= n_vms:
        hint_matrix.refuse(INDEX, text, f'a row between 0 and {n_vms - 1}')
    return int(text)
