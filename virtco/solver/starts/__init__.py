# SPDX-License-Identifier: Apache-2.0

"""Placements made without search."""
