# SPDX-License-Identifier: Apache-2.0

"""Figures of the laboratory, drawn by tests."""

from virtco_lab.sim import figures


def outcome(name, context):
    """What a figure shows of samples that are taken now."""
    figure = figures.FIGURES[name]
    return figure.show(figure.sample(context), context)
