# SPDX-License-Identifier: Apache-2.0

"""Stages of the search: each takes its state and a budget."""
