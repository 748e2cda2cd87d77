# SPDX-License-Identifier: Apache-2.0

"""The laboratory: simulator and emulated testbed; no part of the product."""
