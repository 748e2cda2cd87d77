# SPDX-License-Identifier: Apache-2.0

"""Exact methods: oracles of the tests and the smallest groups."""
