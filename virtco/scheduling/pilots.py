# SPDX-License-Identifier: Apache-2.0

"""Estimates of unknown sizes of flows by a coflow's first flows.

After Jajoo, Hu and Lin, "Your Coflow has Many Flows: Sampling them for Fun and
Speed" (Philae, USENIX ATC 2019). A few flows, the *pilots*, go before the
others, which are small beside them in number; those that have ended say how
large a flow is. Here a receiver's own samples count more than those of the
others, as reducers of one shuffle differ by much and what one gets from its
mappers by little; Philae takes one mean for the whole coflow.

Pure: arrays of shape (F,) of one coflow's flows.
"""

import math

import numpy as np

#: Share of a coflow's flows that are pilots; one flow at least.
SHARE = 0.01
#: Size assumed for a flow of which little has been seen.
FIRST_GUESS_BYTES = 1e6
#: A pilot that still sends is likely to send as much again: sizes have long
#: tails.
STILL_SENDING = 2.0
#: Weight of the mean of all samples, in samples of a receiver's own.
MEAN_WEIGHT = 0.5
#: Share of its sent bytes that a flow is to send after it should have ended.
OVERDUE = 0.1
_GOLDEN = (math.sqrt(5) - 1) / 2


def choose(n_flows: int, share: float = SHARE) -> np.ndarray:
    """Mark the pilots, spread over all flows in any order, shape (F,)."""
    n_pilots = min(n_flows, max(1, math.ceil(share * n_flows)))
    steps = np.arange(1, 2 * n_pilots + 2) * _GOLDEN % 1
    is_pilot = np.zeros(n_flows, bool)
    places = (steps * n_flows).astype(np.int64)
    # Two steps may meet in one place.
    places = places[np.sort(np.unique(places, return_index=True)[1])]
    is_pilot[places[:n_pilots]] = True
    return is_pilot


def remaining_bytes(receiver: np.ndarray, sent_bytes: np.ndarray,
                    has_ended: np.ndarray, is_pilot: np.ndarray
                    ) -> np.ndarray:
    """Estimate the bytes each flow will still send; 0 if it has ended.

    :param receiver: a number for each, from 0.
    """
    is_sample = has_ended | is_pilot
    sample_bytes = np.where(has_ended, sent_bytes, np.maximum(
        FIRST_GUESS_BYTES, STILL_SENDING * sent_bytes))
    mean_bytes = (float(sample_bytes[is_sample].mean()) if is_sample.any()
                  else FIRST_GUESS_BYTES)
    count = np.bincount(receiver, is_sample)
    total = np.bincount(receiver, sample_bytes * is_sample)
    usual_bytes = (total + MEAN_WEIGHT * mean_bytes) / (count + MEAN_WEIGHT)
    size_bytes = np.where(is_pilot, sample_bytes, usual_bytes[receiver])
    least_bytes = OVERDUE * np.maximum(sent_bytes, FIRST_GUESS_BYTES / 10)
    return np.where(has_ended, 0.0,
                    np.maximum(size_bytes - sent_bytes, least_bytes))
