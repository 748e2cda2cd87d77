# SPDX-License-Identifier: Apache-2.0

"""Coflows that come back: the jobs of training and how they share links.

An iteration of a job computes, then sends a coflow, and begins again. Jobs
that share links lose time when they send at once. Crux (SIGCOMM 2024) serves
those first whose GPUs wait most for a second of sending.

Pure: no I/O and no clock.
"""
