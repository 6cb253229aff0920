"""A seeded stream with known answers, as pyarrow tables; a million events take about a second."""

from ouzel.datasets.shop import ShopDay, shop_day

__all__ = ["ShopDay", "shop_day"]
