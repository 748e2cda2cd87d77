# SPDX-License-Identifier: Apache-2.0

"""Objects with a name: the type, the table and the rule of each."""
