"""What every mean, engine or statistic must keep to: tests that one from anywhere inherits."""
