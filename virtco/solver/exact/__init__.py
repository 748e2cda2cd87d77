# SPDX-License-Identifier: Apache-2.0

"""Exact methods, for the smallest groups and as bounds."""
