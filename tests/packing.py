"""Every compression that the package reads, by another way than its own."""

import bz2
import gzip
import lzma

from countersample.data.sources import COMPRESSED_SUFFIXES, zstd

_PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
PACKERS = [_PACKERS[suffix] for suffix in COMPRESSED_SUFFIXES]  # one without a packer fails
