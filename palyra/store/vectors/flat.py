"""Vectors of all items in 8 bits a component, searched by comparing each of them.

The vector of an item is the direction of its own embedding plus a quarter of its neighbours':
an answer and the question before it are found by either.  The position of a vector is the slot of
its row; a slot without a vector has a code that no search may return.

Comparing all vectors takes 15 ms at 100 000 and grows with them.  From 200 000 on they are divided
into clusters of similar direction, and a search compares those in the tenth of the clusters whose
centres are nearest (an inverted file).  A filter that leaves fewer is searched whole.

Source: FAISS, `IndexScalarQuantizer` with `QT_8bit_uniform`: 13 ms for a search of 100 000 vectors
of 384 components, at 384 bytes each.  FAISS releases the interpreter lock.
"""

from collections.abc import Callable, Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from palyra.core.memory.vectors import StoredVector
from palyra.store.sqlite.memory_search import VectorRow
from palyra.store.vectors.rows import NO_SLOT, Mask, Slots

Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]

NEIGHBOUR = np.float32(0.25)
CLUSTERED_SLOTS = 200_000
_PROBED = 10  # one cluster in so many is searched
_POINTS_PER_CLUSTER = 64  # to find its centre
_ITERATIONS = 6  # of k-means; more do not change what is found
DIRECT_SLOTS = 2_048  # of a narrower filter each vector is compared without FAISS
BUILD_SLOTS = 8_192  # decoded at once while building: 12 MB of 384 components
# The types of FAISS do not know that its wrappers take arrays and keywords.
_make_selector: Callable[..., faiss.IDSelector] = faiss.IDSelectorBitmap
_make_parameters: Callable[..., faiss.SearchParameters] = faiss.SearchParameters
_EPSILON = np.float32(1e-9)


class FlatVectors:
    """Vectors by slot.  Searches may run at once, changes not."""

    def __init__(
        self, dimensions: int, span: float, *, clustered_slots: int = CLUSTERED_SLOTS
    ) -> None:
        """Components are stored from -span to span and cut beyond."""
        self._clustered_slots = clustered_slots
        self._clusters: _Clusters | None = None
        faiss.omp_set_num_threads(1)  # with more, a loaded machine needs a second instead of 2 ms
        self.dimensions = dimensions
        self.span = span
        self._index = faiss.IndexScalarQuantizer(
            dimensions, faiss.ScalarQuantizer.QT_8bit_uniform, faiss.METRIC_INNER_PRODUCT
        )
        ends = np.full((2, dimensions), span, np.float32)
        ends[0] *= -1
        self._index.train(ends)
        self.has_vector: Mask = np.zeros(0, np.bool_)
        self._is_blank: Mask = np.zeros(0, np.bool_)  # embedded, without a direction

    @property
    def slots(self) -> int:
        return self.has_vector.size

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.has_vector))

    @property
    def is_embedded(self) -> Mask:
        """Slots with a stored vector, also those whose text has no meaning to the embedder."""
        return self.has_vector | self._is_blank

    def grow(self, slots: int) -> None:
        """Append slots without a vector, up to this number of slots."""
        missing = slots - self.slots
        if missing <= 0:
            return
        self._index.add_sa_codes(np.zeros((missing, self.dimensions), np.uint8))
        self.has_vector = np.concatenate([self.has_vector, np.zeros(missing, np.bool_)])
        self._is_blank = np.concatenate([self._is_blank, np.zeros(missing, np.bool_)])
        if self._clusters is not None:
            self._clusters.grow(slots)

    def put_codes(self, slots: Slots, codes: Codes) -> None:
        """Set the codes of these slots, made by an index of the same span."""
        if slots.size:
            self.codes[slots] = codes
            self.has_vector[slots] = True
            if self._clusters is not None:
                self._clusters.assign(slots, self._index.sa_decode(codes))

    def put(self, slots: Slots, vectors: Floats) -> None:
        """Set the vectors of these slots: (n, dimensions), of length 1."""
        if slots.size:
            self.put_codes(slots, self._index.sa_encode(np.ascontiguousarray(vectors)))

    def put_blank(self, slots: Slots) -> None:
        """Note that the stored vectors of these slots are zeros, which compare with nothing."""
        self._is_blank[slots] = True

    def drop(self, slots: Slots) -> None:
        self.has_vector[slots] = False
        self._is_blank[slots] = False

    @property
    def is_clustering_due(self) -> bool:
        return self._clusters is None and self.count > self._clustered_slots

    def make_clusters(self) -> None:
        """Divide the vectors; half a minute for 500 000."""
        slots = np.flatnonzero(self.has_vector)
        number = int(np.sqrt(slots.size))
        wanted = min(slots.size, number * _POINTS_PER_CLUSTER)
        sample = slots[np.linspace(0, slots.size - 1, wanted).astype(np.int64)]
        kmeans = faiss.Kmeans(
            self.dimensions, number, niter=_ITERATIONS, spherical=True, seed=1,
            max_points_per_centroid=_POINTS_PER_CLUSTER,
        )  # fmt: skip
        kmeans.train(self._index.sa_decode(self.codes[sample]))
        clusters = _Clusters(np.asarray(kmeans.centroids, np.float32))
        clusters.grow(self.slots)
        for start in range(0, slots.size, BUILD_SLOTS):
            part = slots[start : start + BUILD_SLOTS]
            clusters.assign(part, self._index.sa_decode(self.codes[part]))
        self._clusters = clusters

    @property
    def codes(self) -> Codes:
        """Codes of all slots, (slots, dimensions), in the memory of FAISS: valid until it grows."""
        if not self.slots:
            return np.zeros((0, self.dimensions), np.uint8)
        pointer, size = self._index.codes.data(), self.slots * self.dimensions
        codes: Codes = faiss.rev_swig_ptr(pointer, size)
        return codes.reshape(self.slots, self.dimensions)

    def search(self, query: Floats, allowed: Mask, limit: int) -> tuple[Slots, Floats]:
        """Return the allowed slots with the largest cosines, best first, and the cosines."""
        mask = self.has_vector & allowed[: self.slots]
        found = int(np.count_nonzero(mask))
        if self._clusters is not None and found > self._clustered_slots:
            mask &= self._clusters.near(query)
            found = int(np.count_nonzero(mask))
        if found <= max(DIRECT_SLOTS, limit):
            slots = np.flatnonzero(mask)
            cosines = self.cosines(query, slots)
            order = np.argsort(-cosines, kind="stable")[:limit]
            return slots[order], cosines[order]
        # Both locals: the parameters do not keep the selector alive.
        selector = _make_selector(np.packbits(mask, bitorder="little"))
        cosines, slots = self._index.search(
            query[None], limit, params=_make_parameters(sel=selector)
        )
        return slots[0], cosines[0]

    def cosines(self, query: Floats, slots: Slots) -> Floats:
        """Return the cosines of these slots, which have vectors."""
        if not slots.size:
            return np.zeros(0, np.float32)
        return np.asarray(self._index.sa_decode(self.codes[slots]) @ query, np.float32)


class _Clusters:
    """Centres of directions, and the nearest one of each slot."""

    def __init__(self, centres: Floats) -> None:
        self._centres = centres
        self._cluster = np.zeros(0, np.uint16)

    def grow(self, slots: int) -> None:
        missing = slots - self._cluster.size
        self._cluster = np.concatenate([self._cluster, np.zeros(missing, np.uint16)])

    def assign(self, slots: Slots, vectors: Floats) -> None:
        self._cluster[slots] = np.argmax(vectors @ self._centres.T, axis=1)

    def near(self, query: Floats) -> Mask:
        """Return the slots of the clusters whose centres are nearest."""
        is_near = np.zeros(len(self._centres), np.bool_)
        wanted = max(1, len(self._centres) // _PROBED)
        is_near[np.argpartition(-(self._centres @ query), wanted - 1)[:wanted]] = True
        return np.asarray(is_near[self._cluster])


def decode(vectors: Sequence[VectorRow] | Sequence[StoredVector]) -> Floats:
    """Return stored vectors as (n, dimensions) floats."""
    data = b"".join(each.vector if isinstance(each, VectorRow) else each.values for each in vectors)
    scales = np.array([each.scale for each in vectors], np.float32)
    return np.frombuffer(data, np.int8).reshape(len(vectors), -1) * scales[:, None]


def direction(vectors: Floats) -> Floats:
    """Return the vectors at length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, _EPSILON), np.float32)


def mix(own: Floats, previous: Slots, following: Slots, all_vectors: Floats) -> Floats:
    """Return the directions of vectors with their neighbours; indices point into `all_vectors`."""
    mixed = own.copy()
    for neighbours in (previous, following):
        has_one = neighbours != NO_SLOT
        mixed[has_one] += NEIGHBOUR * all_vectors[neighbours[has_one]]
    return direction(mixed)
