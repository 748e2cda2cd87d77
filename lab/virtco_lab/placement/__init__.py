# SPDX-License-Identifier: Apache-2.0

"""Placements that the papers compare with and the product does not use."""
