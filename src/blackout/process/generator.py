"""What can be read off a generator or transition matrix: whether it is one, its jumps, its terminal distribution."""

from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate

Matrix = NDArray[numpy.float64]
_ROUNDING = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 1e-5}  # of a row's sum, relative to its entries
_EXACT = 1e-14  # the same in double precision; such rows are kept, so that a saved matrix is restored bit for bit


def as_csr(name: str, matrix: Any, total: float) -> Any:
    """A matrix of rates (tensor, array or scipy sparse) as a scipy CSR array in float64, its rows summing to `total`.

    Row sums may be off by rounding, by that of single precision too, which leaves no trace in a list; they are then
    made exact.
    """
    from scipy import sparse

    try:
        tolerance = _ROUNDING.get(str(getattr(matrix, "dtype", "")).removeprefix("torch."), 1e-7)
        if isinstance(matrix, Tensor):
            matrix = matrix.detach().cpu().to_dense()
            matrix = (matrix.float() if matrix.dtype == torch.bfloat16 else matrix).numpy()
        if numpy.iscomplexobj(matrix):
            raise ValueError("it is complex")
        if sparse.issparse(matrix):
            csr = sparse.csr_array(validate.sparse(matrix), dtype=numpy.float64, copy=True)
        else:
            csr = sparse.csr_array(numpy.atleast_2d(numpy.asarray(matrix, dtype=numpy.float64)))
    except (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be a square matrix of numbers: {error}") from None
    if csr.shape[0] != csr.shape[1] or csr.shape[0] < 2:
        raise ValueError(f"{name} must be square with at least 2 states, got shape {csr.shape}")
    csr.sum_duplicates()
    csr.eliminate_zeros()  # a stored zero is no jump
    bad = ~numpy.isfinite(csr.data)
    if bad.any():
        raise ValueError(f"{name} must be finite, got {csr.data[bad][0]}")
    return _exact_rows(name, csr, total, tolerance)


def _exact_rows(name: str, csr: Any, total: float, tolerance: float) -> Any:
    """ValueError for rows that do not sum to `total` and for negative entries (of a generator: off the diagonal)."""
    from scipy import sparse

    coo = csr.tocoo()
    rows, columns = coo.coords
    negative = (coo.data < 0) & ((rows != columns) | (total != 0))
    if negative.any():
        k = int(numpy.argmax(negative))
        raise ValueError(f"{name} must not be negative at [{rows[k]}, {columns[k]}], got {coo.data[k]}")
    sums = numpy.asarray(csr.sum(axis=1)).reshape(-1)
    scale = numpy.maximum(total, numpy.asarray(abs(csr).sum(axis=1)).reshape(-1))
    worst = int(numpy.argmax(abs(sums - total) / numpy.maximum(scale, 1e-300)))
    if abs(sums[worst] - total) > tolerance * scale[worst]:
        raise ValueError(f"{name} must have rows that sum to {total:g}, got {sums[worst]} for row {worst}")
    off = numpy.where(abs(sums - total) > _EXACT * scale, sums - total, 0.0)
    if not off.any():
        return csr
    if total == 0:
        return sparse.csr_array(csr - sparse.diags_array(off))
    return sparse.csr_array(sparse.diags_array(total / (total + off)) @ csr)


def displacements(csr: Any) -> tuple[int, ...]:
    """The distinct jumps m -> m + d that have a positive rate somewhere: Appendix B."""
    rows, columns = csr.nonzero()
    return tuple(int(d) for d in numpy.unique(columns - rows) if d != 0)


def without(csr: Any, state: int | None) -> Any:
    """The matrix without an isolated state: one that is neither left nor entered; ValueError if it is not."""
    if state is None:
        return csr
    if csr[[state]].count_nonzero() or csr[:, [state]].count_nonzero():
        raise ValueError(f"pad_state must be a state that nothing leaves or enters, got {state}")
    kept = numpy.delete(numpy.arange(csr.shape[0]), state)
    return csr[kept][:, kept]


def with_isolated(csr: Any) -> Any:
    """The matrix with one state more, the last, that nothing leaves or enters."""
    from scipy import sparse

    return sparse.csr_array(sparse.block_diag([csr, sparse.csr_array((1, 1))]))


def stationary_probs(csr: Any) -> Matrix:
    """The distribution that every start ends in; ValueError with more than one closed set of states."""
    from scipy.sparse import csgraph

    count, label = csgraph.connected_components(csr, directed=True, connection="strong")
    rows, columns = csr.nonzero()
    leaves = numpy.zeros(count, dtype=bool)
    leaves[label[rows[label[rows] != label[columns]]]] = True
    closed = numpy.flatnonzero(~leaves)
    if len(closed) > 1:
        first, second = (int(numpy.flatnonzero(label == c)[0]) for c in closed[:2])
        raise ValueError(
            f"the process has no single terminal distribution: states {first} and {second} lie in different closed sets"
        )
    members = numpy.flatnonzero(label == closed[0])
    probs = numpy.zeros(csr.shape[0])
    probs[members] = _irreducible_probs(csr[members][:, members])
    return probs


def period(csr: Any) -> int:
    """The greatest common divisor of the lengths of all cycles through the states that a chain ends in."""
    from scipy.sparse import csgraph

    members = numpy.flatnonzero(stationary_probs(csr) > 0)
    closed = csr[members][:, members]
    level = csgraph.shortest_path(closed, unweighted=True, indices=0)
    rows, columns = closed.nonzero()
    return int(numpy.gcd.reduce((level[rows] + 1 - level[columns]).astype(int)))


def _irreducible_probs(csr: Any) -> Matrix:
    size = csr.shape[0]
    if size == 1:
        return numpy.ones(1)
    if size <= 2048:
        return _gth(csr.toarray())
    from scipy.sparse import linalg

    # Fix one weight at 1 and solve for the others: the remaining equations of probs @ Q = 0 are regular.
    transposed = csr.T.tocsc()
    transposed.setdiag(0)
    transposed.setdiag(-numpy.asarray(csr.sum(axis=1)).reshape(-1) + csr.diagonal())
    rest = linalg.spsolve(transposed[1:, 1:], -transposed[1:, [0]].toarray().reshape(-1))
    probs = numpy.maximum(numpy.concatenate([[1.0], rest]), 0.0)
    return numpy.asarray(probs / probs.sum())


def _gth(matrix: Matrix) -> Matrix:
    """Grassmann, Taksar and Heyman (1985): elimination without a single subtraction."""
    rates = matrix.copy()
    numpy.fill_diagonal(rates, 0.0)
    for n in range(len(rates) - 1, 0, -1):
        rates[:n, n] /= rates[n, :n].sum()
        rates[:n, :n] += numpy.outer(rates[:n, n], rates[n, :n])
        numpy.fill_diagonal(rates, 0.0)
    probs = numpy.ones(1)
    for n in range(1, len(rates)):
        probs = numpy.append(probs, probs @ rates[:n, n])
        probs /= probs.max()
    return numpy.asarray(probs / probs.sum())


def relaxation_rate(csr: Any) -> float:
    """The smallest decay rate of a generator: minus the largest real part among its non-zero eigenvalues."""
    resolved = 1e-12
    if set(displacements(csr)) <= {-1, 1}:
        from scipy.linalg import eigvalsh_tridiagonal

        # A tridiagonal generator has the spectrum of a symmetric one, which is safe to compute.
        values = eigvalsh_tridiagonal(csr.diagonal(), numpy.sqrt(csr.diagonal(1) * csr.diagonal(-1)))
        resolved = 1e-15
    elif csr.shape[0] <= 2048:
        values = numpy.linalg.eigvals(csr.toarray())
    else:
        from scipy.sparse import linalg

        scale = float(abs(csr.diagonal()).max())
        values = linalg.eigs(csr, k=4, sigma=1e-6 * scale, return_eigenvectors=False)
    decay = numpy.sort(-values.real)[1:]  # the first belongs to the terminal distribution
    return float(max(decay[0], resolved * max(decay[-1], 1e-300)))


def rate_tables(csr: Any, jumps: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """ν_r(m) and ν_r(m - jumps[r]) for all states and channels, each of shape (states, channels)."""
    size = csr.shape[0]
    forward = numpy.zeros((size, len(jumps)))
    arrival = numpy.zeros((size, len(jumps)))
    for r, d in enumerate(jumps):
        diagonal = csr.diagonal(d)
        start = numpy.arange(len(diagonal)) + max(0, -d)
        forward[start, r] = diagonal
        arrival[start + d, r] = diagonal
    return torch.from_numpy(forward), torch.from_numpy(arrival)
