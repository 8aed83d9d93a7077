"""The error of log H on nodes as an approximation of the integral."""
