# SPDX-License-Identifier: Apache-2.0

"""Placement: plans for Nova's questions, and hypothetical plans."""
