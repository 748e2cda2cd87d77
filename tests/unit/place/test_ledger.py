# SPDX-License-Identifier: Apache-2.0

"""No story of launches books a host above its capacity."""

from tests.faults import ledger

TestLaunches = ledger.Launches.TestCase
TestLaunches.settings = ledger.SETTINGS
