"""Statistics of tables: histograms, top items, counts, sums, moments, quantiles."""

#: Module of each statistic by name. A line here adds a function of ``dpgrain``, a command and a
#: name in release files.
OFFERED = {
    "count": "dpgrain.statistics.histogram",
    "sum": "dpgrain.statistics.histogram",
    "mean": "dpgrain.statistics.moments",
    "variance": "dpgrain.statistics.moments",
    "std": "dpgrain.statistics.moments",
    "covariance": "dpgrain.statistics.covariances",
    "correlation": "dpgrain.statistics.covariances",
    "quantiles": "dpgrain.statistics.quantiles",
    "distribution": "dpgrain.statistics.distribution",
    "histogram": "dpgrain.statistics.histogram",
    "top": "dpgrain.statistics.top",
    "elements_per_user": "dpgrain.statistics.contribution_counts",
    "marginals": "dpgrain.statistics.marginals",
}
