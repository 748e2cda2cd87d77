# SPDX-License-Identifier: Apache-2.0

"""Figures of the laboratory, drawn by tests."""

from virtco_lab.sim.figures import index


def outcome(name, context):
    """What a figure shows of samples that are taken now."""
    figure = index.FIGURES[name]
    return figure.show(figure.sample(context), context)
