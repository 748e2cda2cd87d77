# SPDX-License-Identifier: Apache-2.0

"""The evaluation: every figure or table of the papers, by name."""

from virtco_lab.sim.figures import broadcasts
from virtco_lab.sim.figures import choreo
from virtco_lab.sim.figures import hints
from virtco_lab.sim.figures import monitoring
from virtco_lab.sim.figures import orchestra
from virtco_lab.sim.figures import rpca
from virtco_lab.sim.figures import rpca_applications
from virtco_lab.sim.figures import rpca_dynamics
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import sweeps
from virtco_lab.sim.figures import trace
from virtco_lab.sim.figures import training
from virtco_lab.sim.figures import virtco

FIGURES: dict[str, samples.Figure] = {figure.name: figure for figure in (
    *virtco.FIGURES, *sweeps.FIGURES,
    *choreo.FIGURES, *orchestra.FIGURES, *broadcasts.FIGURES,
    *trace.FIGURES, *hints.FIGURES,
    *rpca.FIGURES, *rpca_applications.FIGURES, *rpca_dynamics.FIGURES,
    *training.FIGURES,
    *monitoring.FIGURES)}
