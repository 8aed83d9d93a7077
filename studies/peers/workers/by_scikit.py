"""scikit-learn: mixtures, k-means and HDBSCAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def prepare(data: dict[str, Any], settings: dict[str, Any], seed: int) -> Callable[[], Any]:
    from sklearn.cluster import HDBSCAN, KMeans
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

    X = data["X"]
    method = settings["method"]
    options = settings.get("options", {})

    def bayesian_mixture() -> Any:
        # No mixture has more components than rows.
        n_components = min(settings["n_components"], len(X))
        model = BayesianGaussianMixture(n_components=n_components, random_state=seed, **options)
        return model.fit_predict(X)

    def mixture_with_bic() -> Any:
        tried = []
        for k in settings["ladder"]:
            if k <= len(X):
                model = GaussianMixture(n_components=k, random_state=seed, **options).fit(X)
                tried.append((model.bic(X), k, model))
        _, _, best = min(tried, key=lambda entry: entry[:2])
        return best.predict(X)

    def kmeans_with_silhouette() -> Any:
        from sklearn.metrics import silhouette_score

        sample = settings["sample"] if len(X) > settings["sample"] else None
        tried = []
        for k in settings["ladder"]:
            if k < len(X):
                labels = KMeans(n_clusters=k, random_state=seed, **options).fit_predict(X)
                score = silhouette_score(X, labels, sample_size=sample, random_state=seed)
                tried.append((-score, k, labels))
        return min(tried, key=lambda entry: entry[:2])[2]

    def hdbscan() -> Any:
        return HDBSCAN(copy=True, **options).fit_predict(X)

    def kmeans_given() -> Any:
        return KMeans(n_clusters=settings["true_k"], random_state=seed, **options).fit_predict(X)

    def mixture_given() -> Any:
        model = GaussianMixture(n_components=settings["true_k"], random_state=seed, **options)
        return model.fit_predict(X)

    methods: dict[str, Callable[[], Any]] = {
        "BayesianGaussianMixture": bayesian_mixture,
        "GaussianMixture, BIC": mixture_with_bic,
        "KMeans, silhouette": kmeans_with_silhouette,
        "HDBSCAN": hdbscan,
        "KMeans, given": kmeans_given,
        "GaussianMixture, given": mixture_given,
    }
    return methods[method]
