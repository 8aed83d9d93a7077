"""Lazy frames of polars: collected, or streamed where they read files."""

import numpy as np
import polars as pl
import pytest

from dpsearch import DPMixture
from dpsearch.errors import DataError
from dpsearch.sources.opened import TableOptions, open_table

RNG = np.random.default_rng(0)
KIND = RNG.integers(0, 2, 60)
FRAME = pl.DataFrame(
    {"a": RNG.normal(5.0 * KIND), "b": RNG.normal(size=60), "c": np.array(["x", "y"])[KIND]}
)


def in_memory(path):
    return FRAME.lazy()


def of_a_file(path):
    FRAME.write_parquet(path / "t.parquet")
    return pl.scan_parquet(path / "t.parquet")


@pytest.mark.parametrize("make", [in_memory, of_a_file])
@pytest.mark.parametrize("names", [["a", "b"], ["a", "c"]], ids=str)
def test_a_lazy_frame_is_fitted_as_its_rows_are(make, names, tmp_path):
    lazy = make(tmp_path).select(names)
    plain, model = DPMixture().fit(FRAME[names]), DPMixture().fit(lazy)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    assert model.log_joint_ == plain.log_joint_
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(model.predict_proba(lazy), plain.predict_proba(FRAME[names]))


def test_what_reads_files_is_not_collected(tmp_path):
    with open_table(of_a_file(tmp_path), TableOptions(3)) as opened:
        assert [shard.n_rows for shard in opened.shards] == [20, 20, 20]
        assert opened.table is None
    with open_table(FRAME.lazy(), TableOptions()) as opened:
        assert opened.table is not None


def test_a_lazy_frame_that_cannot_be_read(tmp_path):
    lazy = of_a_file(tmp_path)
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(DataError, match="X cannot be read"):
        DPMixture().fit(lazy)
    with pytest.raises(DataError, match="empty"):
        DPMixture().fit(of_a_file(tmp_path).filter(pl.col("a") > 1e9))
