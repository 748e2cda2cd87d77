# SPDX-License-Identifier: Apache-2.0

"""Plug-in of OpenStack Watcher: its strategy asks the controller for moves.

Loaded by Watcher's decision engine alone; nothing else of virtco imports it.
"""
