"""Incomplete streams: what readers lose, how long gaps are, and how likely an explanation with missing events is."""

from ouzel.loss.gaps import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.model import LossModel

__all__ = ["Exponential", "Gamma", "Gap", "Histogram", "LogNormal", "LossModel", "Uniform"]
