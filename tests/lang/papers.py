"""The queries of the five papers, by paper and place, each with how much of it the paper prints.

PRINTED is as the paper has it, in its own notation, with the scan's damage repaired (lost `and`s, underscores, A-Seq's
stray `<` before a name, see docs/papers.md). Letters that stand for something to be chosen are chosen:
T and W become parameters or numbers, ES a strategy, `…` a few types. CESAR's formulas are mathematics: `1.05 minP` is
written with its `*`, `10,000` without its comma, `a ≤ b ≤ c` as two comparisons, a constant such as IBM in quotes.
COMPLETED is a printed pattern or predicate without a whole query around it; the clauses around it are ours.
RECONSTRUCTED is not printed, or not legible: the paper has it in English, or the listing is missing from the scan.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Origin(Enum):
    PRINTED = "printed"
    COMPLETED = "completed"
    RECONSTRUCTED = "reconstructed"


class PaperQuery(NamedTuple):
    paper: str
    place: str
    text: str
    origin: Origin = Origin.PRINTED


QUERIES = [
    # ── SASE: Wu, Diao, Rizvi, SIGMOD 2006 ──
    PaperQuery("SASE", "2.2.1 Q1", "EVENT SHELF-READING\nWHERE category = 'food' ∧ manufacturer_id = '1'"),
    PaperQuery(
        "SASE",
        "2.2.1 Q2",
        "EVENT SEQ(SHELF-READING x, ! (COUNTER-READING y), EXIT-READING z)\n"
        "WHERE x.id = y.id ∧ x.id = z.id /* or equivalently, [id] */\n"
        "WITHIN 12 hours",
    ),
    PaperQuery(
        "SASE",
        "2.2.1 Q2, as its comment has it",
        "EVENT SEQ(SHELF-READING x, ! (COUNTER-READING y), EXIT-READING z)\nWHERE [id]\nWITHIN 12 hours",
        Origin.COMPLETED,
    ),
    PaperQuery("SASE", "2.2.2 ANY inside SEQ", "EVENT SEQ(A₁, ANY(A₂₁, A₂₂, A₂₃), A₃)", Origin.COMPLETED),
    PaperQuery(
        "SASE",
        "2.3 misplaced inventory",
        "EVENT SEQ(SHELF-READING x, SHELF-READING y, ! (ANY(COUNTER-READING, SHELF-READING) z))\n"
        "WHERE [id] ∧ x.shelf_id ≠ y.shelf_id ∧ x.shelf_id = z.shelf_id\n"
        "WITHIN 1 hour",
    ),
    PaperQuery(
        "SASE",
        "2.3 overdose",
        "EVENT SEQ(MEDICINE-TAKEN x, MEDICINE-TAKEN y)\n"
        "WHERE [name='John'] ∧ [medicine='Antibiotics'] ∧ (x.amount + y.amount) > 1000\n"
        "WITHIN 4 hours",
    ),
    PaperQuery(
        "SASE",
        "3.1 Q3",
        "EVENT SEQ(A x₁, B x₂, ! (C x₃), D x₄)\nWHERE [attr₁, attr₂] ∧ x₁.attr₃ = '1' ∧ x₁.attr₄ < x₄.attr₄\nWITHIN :T",
    ),
    PaperQuery("SASE", "3.3 negation in the middle", "EVENT SEQ(A, !B, C)", Origin.COMPLETED),
    PaperQuery("SASE", "3.3 negated start", "EVENT SEQ(!A, B) WITHIN :T", Origin.COMPLETED),
    PaperQuery("SASE", "3.3 negated end", "EVENT SEQ(A, !B) WITHIN :T", Origin.COMPLETED),
    PaperQuery("SASE", "5.2 template", "EVENT SEQ(E₁, E₂, E₃, E₄) WHERE [attr₁] WITHIN :W"),
    PaperQuery("SASE", "5.3 template", "EVENT SEQ(E₁, E₂, E₃) WHERE [attr₁] WITHIN 10000"),
    PaperQuery(
        "SASE", "5.3 experiment 3", "EVENT SEQ(E₁, E₂, E₃) WHERE [attr₁] ∧ [attr₂] WITHIN 10000", Origin.COMPLETED
    ),
    PaperQuery("SASE", "5.4 template, one test", "EVENT SEQ(E₁, E₂, E₃) WHERE [attr₁] WITHIN :W"),
    PaperQuery("SASE", "5.4 template, two tests", "EVENT SEQ(E₁, E₂, E₃) WHERE [attr₁, attr₂] WITHIN :W"),
    # ── SASE+: Agrawal, Diao, Gyllstrom, Immerman, SIGMOD 2008 ──
    PaperQuery(
        "SASE+",
        "Figure 1(a) Query 1",
        "PATTERN SEQ(Shelf a, ~(Register b), Exit c)\n"
        "WHERE skip_till_next_match(a, b, c) {\n"
        "          a.tag_id = b.tag_id\n"
        "    and   a.tag_id = c.tag_id\n"
        "          /* equivalently, [tag_id] */ }\n"
        "WITHIN 12 hours",
    ),
    PaperQuery(
        "SASE+",
        "Figure 1(b) Query 2",
        "PATTERN SEQ(Alert a, Shipment+ b[])\n"
        "WHERE skip_till_any_match(a, b[]) {\n"
        "          a.type = 'contaminated'\n"
        "    and   b[1].from = a.site\n"
        "    and   b[i].from = b[i-1].to }\n"
        "WITHIN 3 hours",
    ),
    PaperQuery(
        "SASE+",
        "Figure 1(c) Query 3",
        "PATTERN SEQ(Stock+ a[], Stock b)\n"
        "WHERE skip_till_next_match(a[], b) {\n"
        "          [symbol]\n"
        "    and   a[1].volume > 1000\n"
        "    and   a[i].price > avg(a[..i-1].price)\n"
        "    and   b.volume < 80%*a[a.LEN].volume }\n"
        "WITHIN 1 hour",
    ),
    *(
        PaperQuery(
            "SASE+",
            f"6 template, {name} {strategy}",
            f"PATTERN(STOCK+ a[], STOCK b) where {strategy} "
            f"{{[symbol] ∧ a[1].price %500==0 ∧ {predicate} ∧ b.volume <150}} within 500 events",
        )
        for strategy in ("partition_contiguity", "skip_till_next_match")
        for name, predicate in (
            ("p1", "True"),
            ("p2", "a[i].price > a[i-1].price"),
            ("p3 max", "a[i].price > max(a[i-1].price)"),
            ("p3 min", "a[i].price > min(a[i-1].price)"),
            ("p3 avg", "a[i].price > avg(a[i-1].price)"),
        )
    ),
    # An aggregate of one event says nothing: the table must have meant the range that Query 3 uses.
    *(
        PaperQuery(
            "SASE+",
            f"6 template, p3 {aggregate} over the range, {strategy}",
            f"PATTERN(STOCK+ a[], STOCK b) where {strategy} "
            f"{{[symbol] ∧ a[1].price %500==0 ∧ a[i].price > {aggregate}(a[..i-1].price) ∧ b.volume <150}} "
            "within 500 events",
            Origin.RECONSTRUCTED,
        )
        for strategy in ("partition_contiguity", "skip_till_next_match")
        for aggregate in ("max", "min", "avg")
    ),
    *(
        PaperQuery(
            "SASE+",
            f"6 template, p3* {strategy}",
            f"PATTERN(STOCK+ a[], STOCK b, STOCK c) where {strategy} {{[symbol] ∧ a[1].price %500==0 "
            "∧ a[i].price > max(a[..i-1].price) ∧ b.volume <150 ∧ c.price > a[1].price ∧ c.price < a[a.len].price} "
            "within 500 events",
            Origin.COMPLETED,
        )
        for strategy in ("partition_contiguity", "skip_till_next_match")
    ),
    # ── A-Seq: Qi, Cao, Ray, Rundensteiner, SIGMOD 2014 ──
    PaperQuery(
        "A-Seq",
        "1 application I",
        "PATTERN <SEQ(TypeUsername, TypePassword, ClickSubmit)>\n"
        "  WHERE <TypePassword.value != TypeUsername.Password>\n"
        "  GROUP BY <IP>\n"
        "  [AGG COUNT] [WITHIN 10s]",
    ),
    PaperQuery(
        "A-Seq",
        "1 application II",
        "PATTERN <SEQ(Kindle, KindleCase, Stylus)>\n"
        "  WHERE <Kindle.userId=KindleCase.userId=Stylus.userId>\n"
        "  [AGG COUNT] [WITHIN 1hour]",
    ),
    PaperQuery("A-Seq", "2.1 equation 1", "PATTERN SEQ(E₁, E₂, E₃)", Origin.COMPLETED),
    PaperQuery("A-Seq", "2.1 equation 2", "PATTERN SEQ(E₁, !E₂, E₃)", Origin.COMPLETED),
    PaperQuery(
        "A-Seq",
        "2.2 example 1",
        "Pattern SEQ(TypeUsername a, TypePassword b, ClickSubmit c)\n[AGG COUNT] WITHIN 5s",
        Origin.COMPLETED,
    ),
    PaperQuery("A-Seq", "3.3 recommendation", "PATTERN SEQ(VK, BK, !REC, VC, BC) [AGG COUNT]", Origin.COMPLETED),
    PaperQuery("A-Seq", "3.3 example 4", "PATTERN SEQ(A, B, !C, D) [AGG COUNT]", Origin.COMPLETED),
    PaperQuery(
        "A-Seq",
        "3.4 local predicate",
        "PATTERN SEQ(Kindle, KindleCase) WHERE <Kindle.model = 'touch'> [AGG COUNT]",
        Origin.COMPLETED,
    ),
    PaperQuery(
        "A-Seq", "3.4 example 5", "PATTERN <SEQ(A, B, C, D)> WHERE <A.id=B.id=C.id=D.id> [AGG COUNT]", Origin.COMPLETED
    ),
    PaperQuery("A-Seq", "4 example 6 Q1", "PATTERN SEQ(VKindle,BKindle,VCase,BCase) [AGG COUNT]", Origin.COMPLETED),
    PaperQuery("A-Seq", "4 example 6 Q2", "PATTERN SEQ(VKindle,BKindle,VKindleFire) [AGG COUNT]", Origin.COMPLETED),
    PaperQuery(
        "A-Seq",
        "4 example 6 Q3",
        "PATTERN SEQ(VKindle,BKindle,VCase,BCase,VeBook,BeBook) [AGG COUNT]",
        Origin.COMPLETED,
    ),
    PaperQuery(
        "A-Seq",
        "4 example 6 Q4",
        "PATTERN SEQ(VKindle,BKindle,VCase,BCase,VLight,BLight) [AGG COUNT]",
        Origin.COMPLETED,
    ),
    PaperQuery(
        "A-Seq", "4 example 6 Q5", "PATTERN SEQ(ViPad,VKindleFire,VKindle,BKindle) [AGG COUNT]", Origin.COMPLETED
    ),
    PaperQuery("A-Seq", "4.2 chopped pattern", "PATTERN SEQ(A, B, C, D, E, F, G) [AGG COUNT]", Origin.COMPLETED),
    *(
        PaperQuery(
            "A-Seq", f"5 {function}", f"PATTERN SEQ(A a, B b, C c, D d) [AGG {function}(c.weight)]", Origin.COMPLETED
        )
        for function in ("SUM", "AVG", "MAX", "MIN")
    ),
    PaperQuery(
        "A-Seq", "6.2 negation test q1", "PATTERN SEQ(DELL, IPIX, AMAT) [AGG COUNT] [WITHIN 1000ms]", Origin.COMPLETED
    ),
    PaperQuery(
        "A-Seq",
        "6.2 negation test q2",
        "PATTERN SEQ(DELL, IPIX, !QQQ, AMAT) [AGG COUNT] [WITHIN 1000ms]",
        Origin.COMPLETED,
    ),
    # ── AYAC: Toossi 2007 ──
    PaperQuery(
        "AYAC",
        "2.2 shoplifting",
        "SEQUENCE (x, !y, z)\n"
        "WHERE x.reader = 'A' AND y.reader = 'B' AND z.reader = 'C' AND x.id[z.id] = z.id AND y.id = z.id\n"
        "WITHIN 12 hours\n"
        "THRESHOLD 0.01",
        Origin.RECONSTRUCTED,  # The listing is missing from the scan; this is docs/semantics.md's.
    ),
]

# CESAR (Demers, Gehrke, Hong, Riedewald, White) writes algebra, not text: what is text in it are the formulas.
FORMULAS = [
    PaperQuery("CESAR", "1.1 Query 1, selection", "name = 'IBM' ∧ price > 100", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "1.1 Query 2, first selection", "S1.name = 'IBM' ∧ S1.price > 100", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "1.1 Query 2, filter", "S2.name = 'MSFT'", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "1.1 Query 2, second selection", "S2.price < 25", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "2.2 Query 3, filter", "S1.name = S2.name"),
    PaperQuery("CESAR", "1.1 Query 3, selection", "S2.price > 1.05 * S1.price", Origin.RECONSTRUCTED),
    PaperQuery(
        "CESAR", "1.1 Query 3, by removing pairs", "¬(q.name ≠ p.name) ∧ ¬(q.price ≤ 1.05 * p.price)", Origin.COMPLETED
    ),
    PaperQuery("CESAR", "1.1 Query 4, filter", "S1.name = 'IBM' ∧ S2.name = 'IBM'", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "1.1 Query 4, selections", "price > price.last ∧ DUR ≥ 30 min", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "2.3 Query 5, θ1", "S1.name = S2.name"),
    PaperQuery("CESAR", "2.3 Query 5, θ2", "S2.price > S2.price.last"),
    PaperQuery("CESAR", "2.3 Query 5, θ3", "DUR ≥ 30 min"),
    PaperQuery("CESAR", "2.4 introduction of AVG", "(S1.price + S2.price) / 2"),
    PaperQuery("CESAR", "2.4 Query 6, θ", "name = 'IBM'"),
    PaperQuery("CESAR", "2.4 Query 6, g1 of AVG", "price"),
    PaperQuery("CESAR", "2.4 Query 6, g1 of COUNT", "1"),
    PaperQuery("CESAR", "2.4 Query 6, g2 of AVG", "(COUNT.last × AVG.last + price) / (COUNT.last + 1)"),
    PaperQuery("CESAR", "2.4 Query 6, g2 of COUNT", "COUNT.last + 1"),
    PaperQuery("CESAR", "2.4 Query 6, duration", "DUR=52 weeks"),
    PaperQuery("CESAR", "2.4 Query 6, iteration", "TRUE"),
    PaperQuery("CESAR", "2.4 Query 6, θ1", "S3.name = 'IBM'"),
    PaperQuery("CESAR", "2.4 Query 6, θ2", "S3.price > AVG"),
    PaperQuery("CESAR", "3.1 Query 7, θ1", "vol > 10000"),
    PaperQuery("CESAR", "3.1 Query 7, θ2", "company = company.last"),
    PaperQuery("CESAR", "3.1 Query 7, θ3", "company = company.last ∧ minP < minP.last"),
    PaperQuery("CESAR", "3.1 Query 7, θ4", "company = company.last ∧ minP < minP.last ∧ DUR ≥ 10 min"),
    PaperQuery("CESAR", "3.1 Query 7, θ5", "company = company.last ∧ price > 1.05 * minP"),
    PaperQuery("CESAR", "3.5 resubscription, θ", "S3.price > S1.price"),
    PaperQuery("CESAR", "5.1 Query 8, θ1", "S1.name = 'IBM' ∧ S1.price < 10", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "5.1 Query 8, θ2", "S2.name = 'IBM' ∧ S2.price > 15", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "5.1 Query 8, θ3", "S3.name = 'IBM' ∧ S3.price < 15", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "5.1 Filter template, θ4", "DUR ≤ 10min ∧ S2.name = 'IBM'"),
    PaperQuery("CESAR", "5.1 Filter template, θ5", "DUR ≤ 10min ∧ S3.name = 'IBM'", Origin.RECONSTRUCTED),
    PaperQuery("CESAR", "5.2.2 local maxima, θ1", "(S2.price > S3.price)"),
    PaperQuery("CESAR", "5.2.2 local maxima, θ2", "(S2.price > S1.price)"),
    PaperQuery("CESAR", "5.2.2 local maxima, θ3", "(S2.name = S1.name)"),
    PaperQuery("CESAR", "5.2.2 local maxima, θ4", "(S3.name = S1.name)"),
    PaperQuery("CESAR", "5.2.2 Double-Top, θ1", "(E5.price ≤ E1.price)"),
    PaperQuery("CESAR", "5.2.2 Double-Top, θ2", "(0.9 * E2.price ≤ E4.price ∧ E4.price ≤ 1.1 * E2.price)"),
    PaperQuery("CESAR", "5.2.2 Double-Top, θ3", "(0.9 * E1.price ≤ E3.price ∧ E3.price ≤ 1.1 * E1.price)"),
    PaperQuery("CESAR", "5.2.2 Double-Top, θ4", "(E2.price ≥ 1.2 * E1.price)"),
    *(PaperQuery("CESAR", f"5.2.2 Double-Top, θ{n + 3}", f"(E{n}.name = E1.name)") for n in (2, 3, 4, 5)),
]
