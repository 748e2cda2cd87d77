# SPDX-License-Identifier: Apache-2.0

"""Robustness to wrong sizes by planning for more (VirtCO section 3.2)."""

import math

from virtco import exception


def factor(low_priority_bytes: float, total_bytes: float) -> float:
    """Return 1 + beta*, by which every hinted size is multiplied.

    beta* is the fraction of low-priority traffic: what is reserved too much
    is used by it in a work-conserving manner, so the more there is of it the
    less an overestimate costs.

    :param low_priority_bytes: bytes without a completion time to meet.
    :param total_bytes: all bytes of the same period; 0 gives a factor of 1.
    :raises virtco.exception.Invalid: for a negative or non-finite count, or
        more low-priority bytes than bytes.
    """
    for field, value in (('low_priority_bytes', low_priority_bytes),
                         ('total_bytes', total_bytes)):
        if not (math.isfinite(value) and value >= 0):
            raise exception.Invalid(field=field, value=value,
                                    limit='a finite number, at least 0')
    if low_priority_bytes > total_bytes:
        raise exception.Invalid(field='low_priority_bytes',
                                value=low_priority_bytes,
                                limit=f'at most total_bytes {total_bytes}')
    if total_bytes == 0:
        return 1.0
    return 1.0 + low_priority_bytes / total_bytes
