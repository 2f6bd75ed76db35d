"""How groups are to read topics, by pull or by pop: `config/messageRequestMode.json`."""

from __future__ import annotations

from typing import Final

from ariane.broker.persistence import SavedFile, Saver, load
from ariane.disk import Disk
from ariane.protocol import fastjson
from ariane.protocol.bodies.pop import RequestMode, RequestModes

PATH: Final = "config/messageRequestMode.json"


class RequestModeTable:
    """(topic, group) -> how the group reads the topic, where somebody has set it."""

    def __init__(self, saver: Saver) -> None:
        self.file = SavedFile(PATH, self._encode, saver)
        self._modes: dict[str, dict[str, RequestMode]] = {}

    def get(self, topic: str, group: str) -> RequestMode | None:
        """What was set for a group on a topic."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: RequestMode) -> None:
        """Set how a group reads a topic."""
        self._modes.setdefault(mode.topic, {})[mode.group] = mode
        self.file.changed()

    def table(self) -> RequestModes:
        """Everything, as it is shown and saved."""
        return RequestModes(modes=self._modes)

    def load(self, disk: Disk) -> None:
        """Take over what is on the disk; raises CorruptFile when it cannot be read."""
        saved = load(disk, PATH, RequestModes)
        if saved is not None:
            self._modes = saved.modes

    def _encode(self) -> bytes:
        return fastjson.dumps_pretty(self.table())
