"""Mistakes in row patterns: the clause, its mistake between « and », and the sentence."""

from __future__ import annotations

from ouzel.bind.model import DATE, FLOAT, INT, OTHER, STRING, Kind, Type

COLUMNS = {
    "k": STRING,
    "t": INT,
    "v": INT,
    "f": FLOAT,
    "d": DATE,
    "at": Type(Kind.TIMESTAMP, unit="us"),
    "Price": INT,
    "price": INT,
    "place": Type(Kind.STRUCT, fields=(("city", STRING),)),
    "list": OTHER,
}
MANY = " ".join(f"A{number}" for number in range(65))

ROW_PATTERNS = [
    (
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN («{- A -}» B)",
        "{- -} cannot be used WITH UNMATCHED ROWS: the rows that it leaves out are matched",
    ),
    (f"PATTERN («{MANY}»)", "a pattern may have 64 variables at most"),
    ("PATTERN (A) SUBSET «A = (A)»", "the name 'A' is used twice"),
    ("PATTERN (A) SUBSET U = (A), «W = (U)»", "'U' is a SUBSET, and a SUBSET has variables of the pattern only"),
    ("PATTERN (A) DEFINE A AS v > «C.v»", "there is no variable 'C'"),
    ("PATTERN (A «OR» B)", "OR cannot be a variable of a pattern"),
    ("PATTERN (A) DEFINE A AS v > «ticks.v»", "there is no variable 'ticks'"),
    ("PATTERN (A) DEFINE A AS «w.z» > 1", "there is no variable 'w'"),
    ("PATTERN (A) DEFINE A AS v > «LAG(v)»", "there is no function 'lag' in a row pattern"),
    ("PATTERN (A) DEFINE A AS «PRICE» > 1", "'PRICE' may be 'Price' or 'price'"),
    ("PATTERN (A) DEFINE A AS «w» > 1", "the input has no column 'w'"),
    ("PATTERN (A) DEFINE A AS «place.town» = 'x'", "'place' has no field 'town'"),
    ("PATTERN (A) WITHIN «5»", "WITHIN needs an ascending ORDER BY"),
    ("ORDER BY k PATTERN (A) WITHIN «5»", "WITHIN needs a time or a number in ORDER BY, got a string"),
    ("ORDER BY t PATTERN (A) WITHIN «:text»", "WITHIN takes a duration or a number"),
    ("ORDER BY t PATTERN (A) WITHIN «0»", "WITHIN must be greater than 0"),
    ("ORDER BY at PATTERN (A) WITHIN «5»", "WITHIN takes a duration where ORDER BY has timestamps"),
    ("ORDER BY t PATTERN (A) WITHIN «1.5»", "WITHIN must be a whole number here"),
    ("PATTERN (A) SUBSET U = (A) DEFINE «U AS v > 1»", "'U' is a SUBSET and cannot be defined"),
    ("PATTERN (A) DEFINE «B AS v > 1»", "'B' is defined but is not in the pattern"),
    ("PATTERN (A) DEFINE A AS v > 1, «A AS v > 2»", "'A' is defined twice"),
    ("MEASURES v AS m, «t AS m» PATTERN (A)", "two columns are named 'm'"),
    ("PARTITION BY v, «V» PATTERN (A)", "two PARTITION BY columns are named 'v'"),
    ("PARTITION BY «list» PATTERN (A)", "PARTITION BY cannot use a map or time of day"),
    ("MEASURES «v[1]» AS m PATTERN (A)", "a column cannot have brackets here"),
    ("MEASURES «A» AS m PATTERN (A)", "'A' is a variable, not a value"),
    ("MEASURES «SUM(A.v + v)» AS m PATTERN (A)", "SUM(…) must be about one variable"),
    (
        "MEASURES «FINAL PREV(v)» AS m PATTERN (A)",
        "FINAL belongs before FIRST, LAST or an aggregate, not before PREV",
    ),
    (
        "PATTERN (A) DEFINE A AS «FINAL SUM(v)» > 1",
        "FINAL cannot be used in DEFINE: the match is not complete there",
    ),
    (
        "PATTERN (A) DEFINE A AS «PREV(FINAL LAST(v))» > 1",
        "FINAL cannot be used in DEFINE: the match is not complete there",
    ),
    ("PARTITION BY «FIRST(v)» PATTERN (A)", "FIRST cannot be used in PARTITION BY"),
    ("MEASURES «time(v)» AS m PATTERN (A)", "there is no function 'time' in a row pattern"),
    ("PATTERN (A) DEFINE A AS SUM(«PREV(v)») > 1", "PREV cannot be inside SUM"),
    ("MEASURES «FIRST()» AS m PATTERN (A)", "FIRST needs a value"),
    ("MEASURES «FIRST(v, 1, 2)» AS m PATTERN (A)", "FIRST takes a value and an offset"),
    ("MEASURES LAST(v, «-1») AS m PATTERN (A)", "the offset must be a whole number that is not negative"),
    ("MEASURES «CLASSIFIER(A, A)» AS m PATTERN (A)", "CLASSIFIER takes one variable or none"),
    ("MEASURES «MATCH_NUMBER(1)» AS m PATTERN (A)", "MATCH_NUMBER takes no arguments"),
    ("MEASURES LAST(v + «MATCH_NUMBER()») AS m PATTERN (A)", "MATCH_NUMBER cannot be inside LAST"),
    ("MEASURES «SUM(v, t)» AS m PATTERN (A)", "SUM takes one value"),
    ("PATTERN (A) DEFINE A AS «ARRAY_AGG(v)» IS NULL", "ARRAY_AGG cannot be used in DEFINE"),
    ("PATTERN (A) DEFINE A AS «COUNT(DISTINCT v)» > 1", "COUNT(DISTINCT …) cannot be used in DEFINE"),
    ("MEASURES «SUM()» AS m PATTERN (A)", "SUM needs a value"),
]
