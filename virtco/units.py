# SPDX-License-Identifier: Apache-2.0

"""All unit conversions of the project live here.

Rates are **bits per second** (``_bps``) everywhere outside the kernel's own
structures, sizes are **bytes** (``_bytes``), times are **seconds**
(``_s``). Decimal prefixes are powers of ten, binary ones (KiB, MiB, ...)
powers of two.
"""

import math
import re

BITS_PER_BYTE = 8
SECONDS_PER_HOUR = 3600

_PREFIXES = {
    '': 1, 'K': 10 ** 3, 'M': 10 ** 6, 'G': 10 ** 9, 'T': 10 ** 12,
    'P': 10 ** 15,
    'KI': 2 ** 10, 'MI': 2 ** 20, 'GI': 2 ** 30, 'TI': 2 ** 40,
    'PI': 2 ** 50,
}
_TEXT = re.compile(r'\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*'
                   r'([KMGTP]i?)?([a-z/]*)\s*', re.IGNORECASE | re.ASCII)
_SIZE_UNITS = {'', 'B'}
_TIME = re.compile(r'\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*'
                   r'(us|ms|s|min|h|)\s*', re.ASCII)
_TIME_UNITS = {'us': 1e-6, 'ms': 1e-3, 's': 1.0, '': 1.0, 'min': 60.0,
               'h': 3600.0}
_RATE_UNITS = {'', 'bit', 'bits', 'bit/s', 'bps', 'b/s'}


class AmbiguousUnit(ValueError):
    """Bits where bytes are expected, or a unit that may be either.

    :ivar advice: what to write instead.
    """

    def __init__(self, text: str, instead: str):
        self.advice = f'bits or bytes? write {instead}'
        super().__init__(f'{text!r}: {self.advice}')


def bytes_per_s_to_bps(rate_bytes_per_s: float) -> float:
    return rate_bytes_per_s * BITS_PER_BYTE


def kilobytes_per_s_to_bps(rate_kb_per_s: float) -> float:
    return rate_kb_per_s * 1000 * BITS_PER_BYTE


def bps_to_bytes_per_s(rate_bps: float) -> float:
    return rate_bps / BITS_PER_BYTE


def ms_to_s(time_ms: float) -> float:
    return time_ms / 1e3


def transfer_time_s(size_bytes: float, rate_bps: float) -> float:
    """Compute seconds to move size_bytes at rate_bps; 0/0 = 0, x/0 = inf."""
    if size_bytes <= 0:
        return 0.0
    if rate_bps <= 0:
        return math.inf
    return size_bytes * BITS_PER_BYTE / rate_bps


def parse_size_bytes(text: str) -> float:
    """Read a size such as ``'720MB'``, ``'1.5 GiB'`` or ``'4096'``.

    :raises AmbiguousUnit: for bits, such as ``'5Gb'``.
    :raises ValueError: when the text is not a non-negative finite size.
    """
    number, prefix, unit = _parts(text, 'size')
    if unit not in _SIZE_UNITS:
        if unit == 'b' or unit.lower() in _RATE_UNITS:
            raise AmbiguousUnit(text, f'{number}{prefix}B')
        raise ValueError(f'{text!r} is not a size')
    return _value(text, 'size', number, prefix)


def parse_rate_bps(text: str) -> float:
    """Read a rate such as ``'100Mbit'``, ``'1Gbps'`` or ``'1e9'``.

    :raises AmbiguousUnit: for what may be bytes, such as ``'1GB/s'``.
    :raises ValueError: when the text is not a non-negative finite rate.
    """
    number, prefix, unit = _parts(text, 'rate')
    if unit.lower() == 'b' or unit in ('Bps', 'B/s'):
        raise AmbiguousUnit(text, f'{number}{prefix}bit')
    if unit.lower() not in _RATE_UNITS:
        raise ValueError(f'{text!r} is not a rate')
    return _value(text, 'rate', number, prefix)


def parse_time_s(text: str) -> float:
    """Read a time such as ``'250ms'``, ``'1.5 s'``, ``'2min'`` or ``'3'``.

    :raises ValueError: when the text is not a non-negative finite time.
    """
    match = _TIME.fullmatch(text)
    value = (float(match[1]) * _TIME_UNITS[match[2]] if match is not None
             else math.inf)
    if not math.isfinite(value):
        raise ValueError(f'{text!r} is not a time')
    return value


def _parts(text: str, what: str) -> tuple[str, str, str]:
    """Split text into number, prefix and unit."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a {what}')
    number, prefix, unit = match.groups(default='')
    return number, prefix.capitalize(), unit


def _value(text: str, what: str, number: str, prefix: str) -> float:
    value = float(number) * _PREFIXES[prefix.upper()]
    if not math.isfinite(value):
        raise ValueError(f'{text!r} is not a finite {what}')
    return value


def format_size(size_bytes: float) -> str:
    return _format(size_bytes, 'B')


def format_rate(rate_bps: float) -> str:
    return _format(rate_bps, 'bit/s')


def format_time(time_s: float) -> str:
    for unit in ('h', 'min', 's', 'ms'):
        if time_s >= _TIME_UNITS[unit]:
            return f'{time_s / _TIME_UNITS[unit]:.4g} {unit}'
    return '0 s' if time_s <= 0 else f'{time_s / _TIME_UNITS["us"]:.4g} us'


def _format(value: float, suffix: str) -> str:
    for prefix in ('P', 'T', 'G', 'M', 'K'):
        if abs(value) >= _PREFIXES[prefix]:
            shown = 'k' if prefix == 'K' else prefix
            return f'{value / _PREFIXES[prefix]:.4g} {shown}{suffix}'
    return f'{value:.4g} {suffix}'
