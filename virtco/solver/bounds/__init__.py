# SPDX-License-Identifier: Apache-2.0

"""What no placement can fall below."""
