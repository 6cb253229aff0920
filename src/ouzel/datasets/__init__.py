"""Seeded workloads: the papers' generators, and small worlds whose right answers are known.

Every generator takes a seed and returns pyarrow tables; a million events take about a second.
"""

from ouzel.datasets.lossy import LossyShop, lossy_shop
from ouzel.datasets.medicine import MedicineLog, medicine
from ouzel.datasets.sase import SaseQuery, sase_events, sase_matches_per_event, sase_query, sase_selectivity
from ouzel.datasets.shop import ShopDay, shop_day
from ouzel.datasets.stocks import stock_ticks, stock_trades
from ouzel.datasets.technical import technical_events

__all__ = [
    "LossyShop",
    "MedicineLog",
    "SaseQuery",
    "ShopDay",
    "lossy_shop",
    "medicine",
    "sase_events",
    "sase_matches_per_event",
    "sase_query",
    "sase_selectivity",
    "shop_day",
    "stock_ticks",
    "stock_trades",
    "technical_events",
]
