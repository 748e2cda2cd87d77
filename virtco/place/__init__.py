# SPDX-License-Identifier: Apache-2.0

"""Placement: from Nova's question to a plan, and what if."""
