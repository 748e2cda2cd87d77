# SPDX-License-Identifier: Apache-2.0

"""The problem as arrays, exact reductions, and the cost of a placement."""
