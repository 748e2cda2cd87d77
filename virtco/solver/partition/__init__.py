# SPDX-License-Identifier: Apache-2.0

"""The set-partition program: columns, prices, master and rounding."""
