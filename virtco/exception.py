# SPDX-License-Identifier: Apache-2.0

"""Every exception that virtco raises on purpose, in one tree."""

from typing import Any

#: Most characters of a field or a value that an error shows.
SHOWN_CHARS = 160


class VirtcoException(Exception):
    """Base: subclasses set ``msg_fmt`` and are raised with its keywords."""

    msg_fmt = 'An unknown error occurred.'

    def __init__(self, message: str | None = None, **kwargs: Any):
        self.kwargs = kwargs
        super().__init__(message or self.msg_fmt % kwargs)


def expected(limit: Any, value: Any) -> str:
    """Word an expectation and the value that came instead, bounded.

    :param limit: a noun phrase, such as "at most 64 VMs".
    :param value: None = there is no value.
    """
    shown = 'nothing' if value is None else bounded(str(value))
    return f'expected {limit}, got {shown}'


def bounded(text: str) -> str:
    """Shorten a text to SHOWN_CHARS."""
    return (text if len(text) <= SHOWN_CHARS
            else text[:SHOWN_CHARS - 1] + '…')


def escaped(text: str) -> str:
    """Escape unprintable characters, as in literals of Python."""
    return text if text.isprintable() else ''.join(
        char if char.isprintable() else ascii(char)[1:-1] for char in text)


class Invalid(VirtcoException):
    """Bad input: raised with ``field``, ``limit`` and ``value``.

    Limit and value are as in :func:`expected`.
    """

    msg_fmt = '%(field)s: %(expected)s.'

    def __init__(self, message: str | None = None, **kwargs: Any):
        for name in ('field', 'value'):
            if isinstance(kwargs.get(name), str):
                kwargs[name] = bounded(kwargs[name])
        super().__init__(message or self.msg_fmt % {
            **kwargs, 'expected': expected(kwargs['limit'], kwargs['value'])
        }, **kwargs)


class ConfigInvalid(VirtcoException):
    """A configuration by which a program cannot start.

    :ivar code: code of the problem, see :mod:`virtco.problems`.
    """

    msg_fmt = '%(why)s'

    @property
    def code(self) -> str:
        """Code of the problem; by default of an option with a bad value."""
        return str(self.kwargs.get('code', 'VC-002'))


class HintInvalid(Invalid):
    """Hint, matrix or announcement that is wrong or goes beyond a limit."""

    msg_fmt = 'Hint ' + Invalid.msg_fmt


class QuotaExceeded(HintInvalid):
    """A project has as much as it may have."""

    msg_fmt = 'Quota of ' + Invalid.msg_fmt


class InputInvalid(Invalid):
    """A tenant's file or option; ``where`` is the file and the line."""

    msg_fmt = '%(where)s: ' + Invalid.msg_fmt


class PolicyInvalid(Invalid):
    """Malformed policy, or one for another host or of an earlier leader."""

    msg_fmt = 'Policy ' + Invalid.msg_fmt


class TopologyInvalid(Invalid):
    """Error in a topology, or a level that its plane does not have."""

    msg_fmt = 'Topology ' + Invalid.msg_fmt


class PlacementInfeasible(VirtcoException):
    """No placement satisfies the hard constraints."""

    msg_fmt = 'No placement exists for %(what)s: %(why)s.'


class WishRefused(PlacementInfeasible):
    """A tenant requires a place that is not there.

    :ivar kwargs: keywords ``level``, ``fitting``, ``wanted`` and ``limiting``.
    """

    msg_fmt = '%(what)s: %(why)s.'


class NotFound(VirtcoException):
    """No object or device has the name or id that was asked for."""

    msg_fmt = '%(what)s %(id)s was not found.'


class Conflict(VirtcoException):
    """A change that another one preceded, or that the state forbids."""

    msg_fmt = '%(what)s %(id)s was changed by someone else.'


class Deposed(VirtcoException):
    """End of a leader's epoch: another scheduler leads by now."""

    msg_fmt = 'Epoch %(epoch)s is over, another scheduler leads.'


class DatabaseUnavailable(VirtcoException):
    """Failed statement, or a database that is away, busy or replaced."""

    msg_fmt = 'The database did not answer: %(why)s.'


class Starting(VirtcoException):
    """The planner, or the process that leads, cannot answer at the moment."""

    msg_fmt = 'There is no plan yet: %(why)s.'


class TooLate(VirtcoException):
    """No plan before the deadline of a placement.

    :ivar kwargs: keyword ``phase``, the phase that takes most of the time.
    """

    msg_fmt = 'no plan in time: %(why)s'


class Forbidden(VirtcoException):
    """Request that no policy rule, ticket or certificate allows."""

    msg_fmt = 'This is not allowed: %(what)s.'


class ControllerUnavailable(VirtcoException):
    """No valid answer of the controller, or a refused connection."""

    msg_fmt = 'The virtco controller at %(url)s did not answer: %(why)s.'


class NovaUnavailable(VirtcoException):
    """No valid answer of Nova or keystone, or a Nova that is too old."""

    msg_fmt = 'Nova did not answer: %(why)s.'


class KernelRefused(VirtcoException):
    """Changes that the kernel or nft refused, or the helper did not make."""

    msg_fmt = 'The kernel refused to %(what)s (%(count)s times): %(why)s.'


class QdiscConflict(VirtcoException):
    """An uplink has a qdisc or a QoS that another program made."""

    msg_fmt = ('%(dev)s is shaped by somebody else (%(qdisc)s); virtco leaves '
               'it alone.')


class AlreadyRuns(VirtcoException):
    """A network namespace that has another edge module."""

    msg_fmt = ('VC-090: this network namespace has another edge module; '
               'pgrep -af virtco-edge names its process.')


class OvsUnavailable(VirtcoException):
    """No connection to the database of Open vSwitch."""

    msg_fmt = 'Open vSwitch at %(address)s did not answer: %(why)s.'


def reason(error: BaseException) -> str:
    """Tell in a few words why a call failed.

    Libraries put the repr of their connection pool around what the operating
    system said; its own words are enough.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None and (
                cause.strerror):
            return cause.strerror.lower()
        if isinstance(cause, TimeoutError) or 'Timeout' in type(
                cause).__name__:
            return 'timed out'
        cause = cause.__cause__ or cause.__context__
    return str(error)[:200]
