# SPDX-License-Identifier: Apache-2.0

"""The entry point of the program that an extra serves."""

import functools

from virtco.cmd import entry

report = functools.partial(
    entry.run, 'virtco-report', 'virtco_lab.cmd.report', 'report',
    'virtco-lab')
