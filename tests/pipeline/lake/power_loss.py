"""The content of a directory after a loss of power, as far as os.fsync promises it."""

import os
import pathlib
import shutil

DATABASE = "catalog.db"
"""SQLite's file. SQLite syncs it without os.fsync, so every image has its present content: a commit must write it last.
"""


class Power:
    """Follows the syncs of this process below `root`. `lost` has the content that a loss of power leaves at each of them:
    two images, because names without a sync may survive (then with empty files) or not.
    """

    def __init__(self, root, monkeypatch):
        self.root = str(root)
        self.lost = []
        self._contents, self._names = {}, {}
        real = os.fsync

        def fsync(descriptor):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path == str(pathlib.Path(self.root).parent) or f"{path}/".startswith(f"{self.root}/"):
                self.look()
                if os.path.isdir(path):
                    self._names[path] = set(os.listdir(path))
                else:
                    self._contents[os.fstat(descriptor).st_ino] = pathlib.Path(path).read_bytes()
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    def look(self):
        """Add the two images of a loss of power at this moment to ``lost``."""
        self.lost += [self._image(names_survive=True), self._image(names_survive=False)]

    def _image(self, *, names_survive):
        image = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                if name == DATABASE:
                    image[path] = pathlib.Path(path).read_bytes()
                elif not name.startswith(DATABASE) and (names_survive or self._is_named(path)):
                    image[path] = self._content(path)
        return image

    def _is_named(self, path):
        if path == str(pathlib.Path(self.root).parent):
            return True
        folder, name = os.path.split(path)
        return name in self._names.get(folder, ()) and self._is_named(folder)

    def _content(self, path):
        now = pathlib.Path(path).read_bytes()
        stored = self._contents.get(os.stat(path).st_ino, b"")
        return stored if now.startswith(stored) else b""  # another file had this inode before

    def put_back(self, image):
        """Make the directory as it is in the image."""
        shutil.rmtree(self.root, ignore_errors=True)
        for path, content in image.items():
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(path).write_bytes(content)
