"""Inner products of a few points with all clusters, the inner loop of the block capability."""

from __future__ import annotations

from dpsearch._jit import inner, view

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
        row = view(items.values, start, width)
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
        r0 = view(pool, first, n_features)
        r1 = view(pool, second, n_features)
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
        r0 = view(pool, first, n_features)
        a0 = a1 = a2 = a3 = 0.0
        for d in range(n_features):
            u = r0[d]
            a0 += u * x0[d]
            a1 += u * x1[d]
            a2 += u * x2[d]
            a3 += u * x3[d]
        products[0, k], products[1, k], products[2, k], products[3, k] = a0, a1, a2, a3
    g00 = g01 = g02 = g03 = g11 = g12 = g13 = g22 = g23 = g33 = 0.0
    for d in range(n_features):
        u0, u1, u2, u3 = x0[d], x1[d], x2[d], x3[d]
        g00 += u0 * u0
        g01 += u0 * u1
        g02 += u0 * u2
        g03 += u0 * u3
        g11 += u1 * u1
        g12 += u1 * u2
        g13 += u1 * u3
        g22 += u2 * u2
        g23 += u2 * u3
        g33 += u3 * u3
    gram[0, 0], gram[0, 1], gram[0, 2], gram[0, 3] = g00, g01, g02, g03
    gram[1, 0], gram[1, 1], gram[1, 2], gram[1, 3] = g01, g11, g12, g13
    gram[2, 0], gram[2, 1], gram[2, 2], gram[2, 3] = g02, g12, g22, g23
    gram[3, 0], gram[3, 1], gram[3, 2], gram[3, 3] = g03, g13, g23, g33


def gather_size(n_features: int) -> int:
    """Number of points to gather at a time: full blocks that the first-level cache holds."""
    return BLOCK * max(2, 1024 // max(1, n_features))
