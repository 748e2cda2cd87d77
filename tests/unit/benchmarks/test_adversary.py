# SPDX-License-Identifier: Apache-2.0

"""An adversary costs as much as it may, in the ways that it says."""

import pytest

from benchmarks import adversary
from virtco import exception
from virtco.wire import frames
from virtco.wire import messages


def test_one_report_is_taken_and_the_other_refused():
    for n_destinations in (adversary.TAKEN, adversary.REFUSED):
        (payload,) = frames.Reader().feed(adversary.large_report(
            n_destinations))
        assert 0.85 < len(payload) / frames.MOST_BYTES < 1
        if n_destinations == adversary.TAKEN:
            assert messages.decode(payload).report.coflows
        else:
            with pytest.raises(exception.Invalid, match='at most 10000'):
                messages.decode(payload)
