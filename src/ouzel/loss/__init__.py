"""Incomplete streams: loss rates of readers, lengths of gaps, and the probability of an explanation with missing
events."""

from ouzel.loss.gaps import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.model import LossModel

__all__ = ["Exponential", "Gamma", "Gap", "Histogram", "LogNormal", "LossModel", "Uniform"]
