"""The queries of the CESAR paper as expressions. Prices are in dollars, times in minutes."""

from __future__ import annotations

from ouzel.algebra import Stream, step, stream

QUOTES = stream("Stock")


def query_1() -> Stream:
    """Notify me when the price of IBM is above $100."""
    return QUOTES.select("name = 'IBM' AND price > 100")


def query_2() -> Stream:
    """… and the first MSFT price afterwards is below $25."""
    microsoft = (
        QUOTES.select("name = 'MSFT'")
        .rename({"name": "other", "price": "other_price"})
        .project(["other", "other_price"])
    )
    return query_1().next(microsoft).select("other_price < 25")


def query_3() -> Stream:
    """A sale of some stock at price p, and the next transaction of the same stock at a price above 1.05 p."""
    return QUOTES.rename({"price": "p"}).next(QUOTES, "name = name.last").select("price > 1.05 * p")


def query_4(minutes: int = 30) -> Stream:
    """The price of IBM increases monotonically for at least 30 minutes."""
    ibm = QUOTES.select("name = 'IBM'")
    return ibm.fold(ibm, step="price > price.last").select(f"DUR >= {minutes}")


def query_5(minutes: int = 30) -> Stream:
    """The price of any stock increases monotonically for at least 30 minutes."""
    return QUOTES.fold(QUOTES, "name = name.last", step="price > price.last").select(f"DUR >= {minutes}")


def query_6(span: int) -> Stream:
    """The next IBM stock is above its average over a span (52 weeks in the paper)."""
    ibm = QUOTES.select("name = 'IBM'")
    average = step().extend(avg="(n.last * avg.last + price) / (n.last + 1)", n="n.last + 1")
    over_span = ibm.extend(avg="price / 1", n="1").fold(ibm, None, average).select(f"DUR = {span}")
    return over_span.next(ibm.project(["price"]).rename({"price": "following"})).select("following > avg")


def query_7() -> Stream:
    """A decrease for at least 10 minutes that starts at a large trade, then a price 5% above the bottom."""
    first = QUOTES.select("vol > 10000").rename({"name": "company", "price": "maxP"}).project(["company", "maxP"])
    second = QUOTES.rename({"name": "company", "price": "minP"}).project(["company", "minP"])
    third = QUOTES.rename({"name": "company", "price": "finalP"}).project(["company", "finalP"])
    falling = first.fold(second, "company = company.last", step="minP < minP.last", first={"minP": "maxP"})
    return falling.select("DUR >= 10").next(third, "company = company.last").select("finalP > 1.05 * minP")


def query_8() -> Stream:
    """Three consecutive quotes: IBM below $10, then IBM above $15, and finally IBM below $15."""
    steps = [
        QUOTES.rename({"name": f"name{k}", "price": f"price{k}"}).project([f"name{k}", f"price{k}"]) for k in (1, 2, 3)
    ]
    two = steps[0].select("name1 = 'IBM' AND price1 < 10").next(steps[1]).select("name2 = 'IBM' AND price2 > 15")
    return two.next(steps[2]).select("name3 = 'IBM' AND price3 < 15")


# ── Double-Top ─────────────────────────────────────────────────────────────────────────────────────

LIMITS = (
    ("b", "b >= 1.2 * a"),
    ("c", "c BETWEEN 0.9 * a AND 1.1 * a"),
    ("d", "d BETWEEN 0.9 * b AND 1.1 * b"),
    ("e", "e <= a"),
)


def double_top_by_fold() -> Stream:
    """Five consecutive extrema A B C D E, one fold for each monotonic stretch between them.

    A fold's result goes on to the next fold at every round, and dies there unless the next quote turns.
    """
    made = (
        QUOTES.rename({"price": "before"}).next(QUOTES.rename({"price": "a"}), "name = name.last").select("a < before")
    )
    last = "a"
    for name, limit in LIMITS:
        going = ">" if name in "bd" else "<"
        following = QUOTES.rename({"price": name})
        step_on = f"{name} {going} {name}.last"
        made = made.fold(following, "name = name.last", step_on, first={name: last}).select(limit)
        last = name
    made = made.next(QUOTES.rename({"price": "after"}), "name = name.last").select("after > e")
    return made.project(["name", "a", "b", "c", "d", "e"])


def extrema() -> Stream:
    """Local maxima and minima of each stock's price: what the resubscription formulation reads."""
    first = QUOTES.rename({"price": "p1"})
    second, third = QUOTES.rename({"price": "p2"}), QUOTES.rename({"price": "p3"})
    pairs = first.next(second, "name = name.last")
    tops = pairs.select("p2 > p1").next(third, "name = name.last").select("p2 > p3").extend(top="TRUE")
    bottoms = pairs.select("p2 < p1").next(third, "name = name.last").select("p2 < p3").extend(top="FALSE")
    return tops.union(bottoms).project(["name", "p2", "top"]).rename({"p2": "price"})


def double_top_by_resubscription() -> Stream:
    """The same over the stream of extrema. An extremum lasts three quotes, so those that follow each other at once
    overlap, and are no sequence: the two formulations agree where every stretch has three steps at least."""
    found = extrema()
    made = found.select("NOT top").rename({"price": "a"}).project(["name", "a"])
    for number, (name, limit) in enumerate(LIMITS):
        kind = "top" if number % 2 == 0 else "NOT top"
        following = found.rename({"price": name})
        made = made.next(following, "name = name.last").select(f"{kind} AND {limit}")
    return made.project(["name", "a", "b", "c", "d", "e"])
