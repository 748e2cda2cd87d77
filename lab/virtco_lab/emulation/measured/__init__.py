# SPDX-License-Identifier: Apache-2.0

"""Figures about measuring a network, with real packets: by name."""

from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import crosstraffic
from virtco_lab.emulation.measured import greedy
from virtco_lab.emulation.measured import lengths
from virtco_lab.emulation.measured import matrices
from virtco_lab.emulation.measured import stability
from virtco_lab.emulation.measured import trains

FIGURES: dict[str, extent.Figure] = {
    'choreo-4': crosstraffic.figure4,
    'choreo-6': trains.figure6,
    'choreo-7': stability.figure7,
    'choreo-8': lengths.figure8,
    'choreo-9': greedy.figure9,
    'choreo-90': trains.pairs90,
    'monitoring-1': matrices.figure1,
}
