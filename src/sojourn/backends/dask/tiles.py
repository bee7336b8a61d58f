"""Minibatches of tiles on a cluster: which steps, without their content.

The client knows where tiles begin and end, and the workers read these steps from a ``.npy`` file,
never a whole sequence.  Steps of other files come from the client, which has converted them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.backends.dask import batches, work
from sojourn.backends.dask.batches import RemoteBatch, ahead
from sojourn.backends.dask.files import RemoteFiles
from sojourn.backends.dask.work import FileTiles, RemoteFile, Setup
from sojourn.sequences import Sequences
from sojourn.sources import TiledSource
from sojourn.sources.steps import FileSteps
from sojourn.sources.tiles import Cuts

WINDOW = 64
"""Parts of a minibatch that the workers have at a time, where they come from the client."""


class ClusterTiles(TiledSource):
    """Tiles that the workers of a cluster read.

    Minibatches in this process are those of a `TiledSource`: samples for moves and for the size
    of buffers come from them.

    Parameters
    ----------
    files : RemoteFiles
    tiles : TiledSource
        The same tiles in this process, of a file of steps.
    """

    def __init__(self, files: RemoteFiles, tiles: TiledSource) -> None:
        super().__init__(
            tiles.data,
            tiles.tile_length,
            tiles.batch_size,
            tiles.seed,
            tiles.buffer,
            tiles.whole_from,
        )
        assert isinstance(tiles.data, FileSteps)
        self.files = files
        self.file = None if tiles.data.is_temporary else RemoteFile.of(tiles.data.source)

    def remote_batches(self, n_pass: int, start: int) -> Iterator[RemoteBatch | WholeTiles]:
        """Yield the minibatches of a pass, without the first `start`, for the workers."""
        self.files.source.check_unchanged()
        tile_pass = TilePass(self, self.cuts(n_pass), self.buffer)
        dealt = self.dealt(n_pass, start)
        if self.is_whole(n_pass):
            yield from (WholeTiles(tile_pass, tiles) for tiles in dealt)
            return
        yield from ahead(tile_pass, (tile_pass.parts(tiles) for tiles in dealt))


class TilePass:
    """The tiles of a pass, as the workers get them.

    Parameters
    ----------
    source : ClusterTiles
    cuts : Cuts
    buffer : int
        Steps around a tile.
    """

    def __init__(self, source: ClusterTiles, cuts: Cuts, buffer: int) -> None:
        self.source = source
        self.cluster = source.files.cluster
        self.cuts = cuts
        self.buffer = buffer

    @property
    def setup(self) -> Setup:
        """What all tasks need."""
        return self.source.files.setup

    def parts(self, tiles: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut the tiles of a minibatch into parts, in a way that depends on these only."""
        return list(self.source.parts(tiles, batches.PART_STEPS))

    def describe(self, tiles: NDArray[np.int64]) -> FileTiles | Sequences:
        """Return where a worker finds some tiles, or these themselves."""
        if self.source.file is None:
            return self.cuts.pieces(tiles, self.buffer, self.source.data)
        return FileTiles(self.source.file, self.cuts.spans(tiles, self.buffer))

    def submit(self, parts: list[NDArray[np.int64]], *, again: bool) -> list[Any]:
        """Let the workers read the parts of a minibatch; return the futures."""
        setup = self.cluster.keep(self.setup)
        return [self.cluster.call(work.take_tiles, setup, self.describe(part)) for part in parts]


class WholeTiles:
    """All tiles of a pass as one minibatch, which the workers read part by part."""

    statistics = staticmethod(work.tile_statistics)

    def __init__(self, tile_pass: TilePass, tiles: NDArray[np.int64]) -> None:
        self._pass = tile_pass
        self._tiles = tiles
        self.setup = tile_pass.setup
        self.window = WINDOW if tile_pass.source.file is None else None

    def runs(self) -> Iterator[FileTiles | Sequences]:
        """Yield the parts of the minibatch."""
        return (self._pass.describe(part) for part in self._pass.parts(self._tiles))
