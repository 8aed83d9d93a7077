"""Inner products of a few points with all clusters, the inner loop of the block capability."""

from __future__ import annotations

from dpsearch._jit import inner

# Points taken at a time.  Two clusters by four points make eight independent sums, as many as
# keep both multiply-add units of a present-day core busy.
BLOCK = 4


@inner
def gather(items, chosen, points):  # type: ignore[no-untyped-def]
    """Copy the chosen points' rows end to end, with zeros up to a full block.

    Copying many rows in one go hides the latency of fetching them from all over memory.
    """
    width = points.shape[1]
    for b in range(chosen.shape[0]):
        # Not through indptr, which would be a second fetch from afar: the rows are dense.
        start = chosen[b] * width
        row = items.values[start : start + width]
        for d in range(width):
            points[b, d] = row[d]
    for b in range(chosen.shape[0], points.shape[0]):
        if b % BLOCK == 0:
            return
        for d in range(width):
            points[b, d] = 0.0


@inner
def block_products(dots, points, pool, starts, products, gram):  # type: ignore[no-untyped-def]
    """Fill products[b, k] = ⟨x_b, S_k⟩ and gram[a, b] = ⟨x_a, x_b⟩ for four points."""
    n_features = dots.n_features
    x0, x1, x2, x3 = points[0], points[1], points[2], points[3]
    n_rows = starts.shape[0]
    k = 0
    while k + 2 <= n_rows:
        first = starts[k] + dots.offset
        second = starts[k + 1] + dots.offset
        r0 = pool[first : first + n_features]
        r1 = pool[second : second + n_features]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
        for d in range(n_features):
            u = r0[d]
            v = r1[d]
            a0 += u * x0[d]
            a1 += u * x1[d]
            a2 += u * x2[d]
            a3 += u * x3[d]
            b0 += v * x0[d]
            b1 += v * x1[d]
            b2 += v * x2[d]
            b3 += v * x3[d]
        products[0, k], products[1, k], products[2, k], products[3, k] = a0, a1, a2, a3
        products[0, k + 1], products[1, k + 1] = b0, b1
        products[2, k + 1], products[3, k + 1] = b2, b3
        k += 2
    if k < n_rows:
        first = starts[k] + dots.offset
        r0 = pool[first : first + n_features]
        a0 = a1 = a2 = a3 = 0.0
        for d in range(n_features):
            u = r0[d]
            a0 += u * x0[d]
            a1 += u * x1[d]
            a2 += u * x2[d]
            a3 += u * x3[d]
        products[0, k], products[1, k], products[2, k], products[3, k] = a0, a1, a2, a3
    for a in range(BLOCK):
        for b in range(a, BLOCK):
            dot = 0.0
            for d in range(n_features):
                dot += points[a, d] * points[b, d]
            gram[a, b] = dot
            gram[b, a] = dot


def gather_size(n_features: int) -> int:
    """Number of points to gather at a time: full blocks that the first-level cache holds."""
    return BLOCK * max(2, 1024 // max(1, n_features))
