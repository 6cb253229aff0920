"""Seeded streams with known answers.

Every generator takes a seed and returns pyarrow tables; a million events take about a second.
"""

from ouzel.datasets.medicine import MedicineLog, medicine
from ouzel.datasets.shop import ShopDay, shop_day

__all__ = ["MedicineLog", "ShopDay", "medicine", "shop_day"]
