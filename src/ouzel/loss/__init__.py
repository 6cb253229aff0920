"""Incomplete streams: loss rates of readers, distributions of gaps between events, and the probability that a match
happened although some of its events are missing.
"""

from ouzel.loss.gaps import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.model import LossModel

__all__ = ["Exponential", "Gamma", "Gap", "Histogram", "LogNormal", "LossModel", "Uniform"]
