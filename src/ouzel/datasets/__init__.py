"""Seeded workloads: the papers' generators, and small worlds whose right answers are known.

Every generator takes a seed and returns pyarrow tables; a million events take about a second.
"""

from ouzel.datasets.medicine import MedicineLog, medicine
from ouzel.datasets.sase import SaseQuery, sase_events, sase_matches_per_event, sase_query, sase_selectivity
from ouzel.datasets.shop import ShopDay, shop_day

__all__ = [
    "MedicineLog",
    "SaseQuery",
    "ShopDay",
    "medicine",
    "sase_events",
    "sase_matches_per_event",
    "sase_query",
    "sase_selectivity",
    "shop_day",
]
