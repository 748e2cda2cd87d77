# SPDX-License-Identifier: Apache-2.0

"""Objects with a name: what is kept of each, and who may change it."""
