# SPDX-License-Identifier: Apache-2.0

"""All unit conversions of the project live here.

Rates are **bits per second** (``_bps``) everywhere outside the kernel's own
structures, sizes are **bytes** (``_bytes``), times are **seconds**
(``_s``). Decimal prefixes are powers of ten, binary ones (KiB, MiB, ...)
powers of two.
"""

from collections.abc import Mapping
import math
import re

from virtco import exception

#: Texts that are read here, as errors describe them.
SIZE = 'a number of bytes or text such as "720MB" or "1.5 GiB"'
RATE = 'a rate such as "10Gbit"'
TIME = 'a number of seconds or text such as "250ms" or "2min"'

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


def number(value: float | None) -> float:
    """Return a number that is infinite where none is given."""
    return math.inf if value is None else value


class NotAnAmount(ValueError):
    """A text that is no size, no rate or no time.

    :ivar limit: expected value, as a noun phrase.
    """

    def __init__(self, limit: str, text: str):
        self.limit = limit
        super().__init__(exception.expected(limit, repr(text)))


def bytes_per_s_to_bps(rate_bytes_per_s: float) -> float:
    """Convert bytes per second to bits per second."""
    return rate_bytes_per_s * BITS_PER_BYTE


def kilobytes_per_s_to_bps(rate_kb_per_s: float) -> float:
    """Convert kilobytes (1000 bytes) per second to bits per second."""
    return rate_kb_per_s * 1000 * BITS_PER_BYTE


def kilobits_per_s_to_bps(rate_kbit_per_s: float) -> float:
    """Convert kilobits (1000 bits) per second to bits per second."""
    return rate_kbit_per_s * 1000


def vif_caps(extra_specs: Mapping[str, str] | None
             ) -> dict[str, float | None]:
    """Read the limits of a flavor (``quota:vif_*``) for each of its ports.

    Where no burst is given, libvirt lets a second's bytes out at once.

    :returns: ``egress_cap_bps`` and ``ingress_cap_bps``, None without a limit,
        ``egress_burst_bytes`` and ``ingress_burst_bytes``.
    """
    out_kb, in_kb, out_burst_kb, in_burst_kb = (
        _positive((extra_specs or {}).get(f'quota:vif_{name}', '0'))
        for name in ('outbound_average', 'inbound_average',
                     'outbound_burst', 'inbound_burst'))
    return {
        'egress_cap_bps': kilobytes_per_s_to_bps(out_kb) or None,
        'ingress_cap_bps': kilobytes_per_s_to_bps(in_kb) or None,
        'egress_burst_bytes': 1024 * (out_burst_kb or out_kb),
        'ingress_burst_bytes': 1024 * in_burst_kb}


def _positive(text: str) -> int:
    """Return the number of an extra spec; 0 where it is not positive.

    Nova leaves it to the hypervisor's driver to refuse such a spec.
    """
    try:
        return max(0, int(text))
    except ValueError:
        return 0


def bps_to_bytes_per_s(rate_bps: float) -> float:
    """Convert bits per second to bytes per second."""
    return rate_bps / BITS_PER_BYTE


def swap_gb(swap_mb: float) -> int:
    """Convert a flavor's MB of swap to the GB of disk that placement claims
    for it, whole ones.
    """
    return math.ceil(swap_mb / 1024)


def ms_to_s(time_ms: float) -> float:
    """Convert milliseconds to seconds."""
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

    :raises NotAnAmount: for bits, such as ``'5Gb'``, and when the text is
        not a non-negative finite size.
    """
    number, prefix, unit = _parts(text, SIZE)
    if unit not in _SIZE_UNITS:
        raise NotAnAmount(
            f'a size in bytes, such as {number}{prefix}B, not in bits'
            if unit == 'b' or unit.lower() in _RATE_UNITS else SIZE, text)
    return _value(text, SIZE, number, prefix)


def parse_rate_bps(text: str) -> float:
    """Read a rate such as ``'100Mbit'``, ``'1Gbps'`` or ``'1e9'``.

    :raises NotAnAmount: for what may be bytes, such as ``'1GB/s'``, and when
        the text is not a non-negative finite rate.
    """
    number, prefix, unit = _parts(text, RATE)
    if unit.lower() == 'b' or unit in ('Bps', 'B/s'):
        raise NotAnAmount(f'a rate in bits per second, such as {number}'
                          f'{prefix}bit, not in bytes', text)
    if unit.lower() not in _RATE_UNITS:
        raise NotAnAmount(RATE, text)
    return _value(text, RATE, number, prefix)


def parse_time_s(text: str) -> float:
    """Read a time such as ``'250ms'``, ``'1.5 s'``, ``'2min'`` or ``'3'``.

    :raises NotAnAmount: when the text is not a non-negative finite time.
    """
    match = _TIME.fullmatch(text)
    value = (float(match[1]) * _TIME_UNITS[match[2]] if match is not None
             else math.inf)
    if not math.isfinite(value):
        raise NotAnAmount(TIME, text)
    return value


def _parts(text: str, limit: str) -> tuple[str, str, str]:
    """Split text into number, prefix and unit."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise NotAnAmount(limit, text)
    number, prefix, unit = match.groups(default='')
    return number, prefix.capitalize(), unit


def _value(text: str, limit: str, number: str, prefix: str) -> float:
    value = float(number) * _PREFIXES[prefix.upper()]
    if not math.isfinite(value):
        raise NotAnAmount(limit, text)
    return value


def format_size(size_bytes: float) -> str:
    """Format bytes with a decimal prefix and four digits: 720 MB."""
    return format_amount(size_bytes, 'B')


def format_rate(rate_bps: float) -> str:
    """Format a rate with a decimal prefix and four digits: 1.5 Gbit/s."""
    return format_amount(rate_bps, 'bit/s')


def format_time(time_s: float) -> str:
    """Format seconds with a unit from us to h and four digits."""
    for unit in ('h', 'min', 's', 'ms'):
        if time_s >= _TIME_UNITS[unit]:
            return f'{time_s / _TIME_UNITS[unit]:.4g} {unit}'
    return '0 s' if time_s <= 0 else f'{time_s / _TIME_UNITS["us"]:.4g} us'


def format_amount(value: float, suffix: str) -> str:
    """Format a number with a decimal prefix and four digits: 1.5 Gbit/s."""
    for prefix in ('P', 'T', 'G', 'M', 'K'):
        if abs(value) >= _PREFIXES[prefix]:
            shown = 'k' if prefix == 'K' else prefix
            return f'{value / _PREFIXES[prefix]:.4g} {shown}{suffix}'
    return f'{value:.4g} {suffix}'
