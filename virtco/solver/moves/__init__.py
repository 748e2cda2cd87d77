# SPDX-License-Identifier: Apache-2.0

"""Placements changed one node at a time: the search and the ranking."""
