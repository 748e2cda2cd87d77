# SPDX-License-Identifier: Apache-2.0

"""Tools of tenants: hints and broadcasts; the controller needs none."""
