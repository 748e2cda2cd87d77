# SPDX-License-Identifier: Apache-2.0

"""The operator's choices at run time, and the history of changes."""

import msgspec

from virtco.api import media
from virtco.api.call import Call
from virtco.wire import setting as wire


def show_settings(call: Call) -> wire.Settings:
    """Show the run-time settings."""
    return msgspec.convert(call.rooms.objects.settings.get(), wire.Settings)


def change_settings(call: Call, body: wire.SettingsChange) -> wire.Settings:
    """Change choices, for all processes and over restarts."""
    return msgspec.convert(call.rooms.objects.settings.change(
        media.some(body), call.who()), wire.Settings)


def list_changes(call: Call) -> wire.History:
    """List the changes that operators made, the newest first."""
    return wire.History(call.rooms.objects.history.list())
