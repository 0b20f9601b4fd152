r"""Point estimates of segmentations: the one of neighbours with the smallest expected variation of information.

The variation of information of a segmentation S from a draw D, of n rows, is
:math:`H(S) + H(D) - 2 I(S, D)` in bits (Meila 2007). Both terms in S are sums over its segments: one of m rows
adds

.. math:: \frac{m}{n} \log_2 \frac{m}{n} - 2 \sum_d \frac{m_d}{n} \log_2 \frac{m_d}{n_d}

where :math:`m_d` of the :math:`n_d` rows of segment d of the draw are in it. Segments of the draw that are wholly
inside add nothing, so that only the first and the last one count. A sum over segments has its exact minimum by
dynamic programming (Auger and Lawrence 1989).
"""

import numpy as np

# Places at which the point segmentation may change: those where most draws do.
MOST_PLACES = 1_000


def places_of_changes(begins: np.ndarray) -> np.ndarray:
    """Return where a segmentation that minimizes an expected loss may begin segments, 0 among them.

    Parameters
    ----------
    begins : (n_draws, n) bool array
        Whether a row in order begins a segment in a draw.
    """
    share = begins.mean(axis=0)
    share[0] = 1.0
    places = np.flatnonzero(share)
    if len(places) > MOST_PLACES:
        places = np.sort(places[np.argsort(-share[places], kind="stable")[:MOST_PLACES]])
    return places


def expected_costs(begins: np.ndarray, places: np.ndarray, n: int) -> np.ndarray:
    """Return what a segment from one place to before another adds to the expected loss: (m, m + 1) float64 array.

    The last column is that of segments that reach to the end; n is the number of rows of all sequences.
    """
    n_draws, length = begins.shape
    ends = np.append(places, length)
    rows = np.arange(length)
    size = ends[None, :] - places[:, None]
    within = size * np.log2(np.maximum(size, 1))
    inside = np.zeros((len(places), len(ends)))
    for drawn in begins:
        starts = np.flatnonzero(drawn | (rows == 0))
        bounds = np.append(starts, length)
        first = np.searchsorted(starts, places, side="right") - 1
        last = np.searchsorted(starts, ends - 1, side="right") - 1
        of_first, of_last = bounds[first + 1] - places, ends - bounds[last]
        head = _weighted(of_first, bounds[first + 1] - bounds[first])
        tail = _weighted(of_last, bounds[last + 1] - bounds[last])
        of_both = head[:, None] + tail[None, :]
        is_one = first[:, None] == last[None, :]
        alone = within - size * np.log2(bounds[first + 1] - bounds[first])[:, None]
        inside += np.where(is_one, alone, of_both)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = size / n * np.log2(size / n)
    return np.where(size > 0, own - 2.0 * inside / (n_draws * n), np.inf)


def _weighted(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the numbers of rows of parts of segments, times the logarithm of their share."""
    found: np.ndarray = part * np.log2(part / whole)
    return found


def point_segmentation(begins: np.ndarray, n: int) -> np.ndarray:
    """Return which rows of a sequence begin a segment of the point segmentation: (length,) bools.

    Parameters
    ----------
    begins : (n_draws, length) bool array
        Whether a row in order begins a segment in a draw.
    n : int
        Rows of all sequences.
    """
    places = places_of_changes(begins)
    costs, m = expected_costs(begins, places, n), len(places)
    least, before = np.zeros(m + 1), np.zeros(m + 1, dtype=np.int64)
    for end in range(1, m + 1):
        totals = least[:end] + costs[:end, end]
        before[end] = np.argmin(totals)
        least[end] = totals[before[end]]
    found = np.zeros(begins.shape[1], dtype=bool)
    end = m
    while end > 0:
        end = int(before[end])
        found[places[end]] = True
    return found
