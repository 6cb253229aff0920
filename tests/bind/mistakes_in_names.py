"""Mistakes in names and indexes: the query with its mistake between « and », the sentence, and the hint."""

from __future__ import annotations

from ouzel.bind.functions import LENGTHS_HINT

AB = "PATTERN SEQ(Shelf a, Exit b) "
KLEENE = "PATTERN SEQ(Shelf+ a[], Exit+ b[]) "

NAMES = [
    ("PATTERN SEQ(«Shef» a, Exit b)", "there is no event type 'Shef'", "did you mean 'Shelf'?"),
    (
        "PATTERN SEQ(«Zebu» a, Exit b)",
        "there is no event type 'Zebu'",
        "the event types are Alarm, Exit, Odd, Register and Shelf",
    ),
    ("PATTERN SEQ(ANY(Shelf, «exit») a, Exit b)", "there is no event type 'exit'", "did you mean 'Exit'?"),
    (AB + "WHERE «a.wieght» > 3", "event type 'Shelf' has no attribute 'wieght'", "did you mean 'weight'?"),
    (AB + "WHERE «a.Tag» = 'x'", "event type 'Shelf' has no attribute 'Tag'", "did you mean 'tag'?"),
    (
        "PATTERN SEQ(ANY(Exit, Register) a, Exit b) WHERE «a.wight» > 3",
        "no event type of 'a' has an attribute 'wight'",
        "the attributes are at, n and tag",
    ),
    (AB + "WHERE «a.address.street» = 'x'", "'address' has no field 'street'", None),
    (AB + "WHERE «a.address.citi» = 'x'", "'address' has no field 'citi'", "did you mean 'city'?"),
    (AB + "WHERE «a.tag.x» = 'x'", "'tag' is string and has no field 'x'", None),
    (AB + "WHERE «c.n» > 3", "there is no variable 'c'", "the variables are a and b"),
    ("PATTERN SEQ(Shelf shelf, Exit b) WHERE «shel.n» > 3", "there is no variable 'shel'", "did you mean 'shelf'?"),
    (AB + "WHERE «n» > 3", "the bare name 'n' does not say whose attribute it is", "write a.n or b.n"),
    (
        AB + 'WHERE a.tag = «"soap"»',
        "there is no variable 'soap'",
        "double quotes are for names, single quotes for text: 'soap'",
    ),
    (AB + "WHERE a.tag = «soap»", "there is no variable or attribute 'soap'", "text is in single quotes: 'soap'"),
    (
        AB + "WHERE «skip_till_next» AND [tag]",
        "there is no variable or attribute 'skip_till_next'",
        "a strategy is written WHERE skip_till_next_match { … }, with all conditions in the braces",
    ),
    (
        AB + "WHERE «len(a)» > 3",
        "there is no function 'len'",
        LENGTHS_HINT,
    ),
    (
        KLEENE + "WHERE «a.size» > 3",
        "event type 'Shelf' has no attribute 'size'",
        "write v.LEN for the number of events of v",
    ),
    (AB + "WHERE «weigh» > 3", "there is no variable or attribute 'weigh'", "did you mean 'weight'?"),
    ("PATTERN SEQ(Shelf a, Exit «a»)", "the variable 'a' is used twice", "give each component its own variable"),
    ("PATTERN SEQ(Shelf Exit, «Exit»)", "the variable 'Exit' is used twice", "give each component its own variable"),
    (
        "PATTERN SEQ(Shelf, Shelf) WHERE «Shelf.n» > 3",
        "'Shelf' is in the pattern more than once",
        "give each a variable: Shelf s1, Shelf s2",
    ),
    (AB + "WHERE «a» > 3", "'a' is an event, not a value", "name an attribute: a.x"),
    (
        "PATTERN SEQ(ANY(Shelf, Odd) v, Exit b) WHERE «v.n» > 3",
        "'n' is integer in event type 'Shelf' but string in 'Odd'",
        None,
    ),
    (
        "PATTERN SEQ(ANY(Shelf, Alarm) v, Exit b) WHERE «v.type» = 'x'",
        "'type' is an attribute of some types of 'v' but not of all",
        "type(v) always gives the event's own",
    ),
    (AB + "WHERE «lowr(a.tag)» = 'x'", "there is no function 'lowr'", "did you mean 'lower'?"),
    (AB + "WHERE «lower(a.tag, 3)» = 'x'", "wrong number of arguments for 'lower'", "write lower(text)"),
    (AB + "WHERE «greatest(a.n)» = 1", "wrong number of arguments for 'greatest'", "write greatest(x, y, …)"),
    (AB + "WHERE «time(1)» = 1", "time(…) takes one event", "write time(v) for a variable v"),
    (AB + "WHERE time(«a.n») = 1", "time(…) needs an event, not a value", "write time(a)"),
    (
        "«PATTERN SEQ(Shelf? a)»",
        "the pattern may be empty: all its components may be absent",
        "at least one component must be required",
    ),
    (
        "«PATTERN AND(Shelf a, Exit b, Exit c, Exit d, Exit e, Exit f)»",
        "the pattern has 720 readings, and may have 128 at most",
        "each optional part doubles them, and AND has one for each order of its parts; split the query with INTO",
    ),
    (
        "PATTERN SEQ(Shelf a, «SEQ(Exit b, Exit c)+»)",
        "SEQ(…) cannot be repeated without an upper bound",
        "write {1,5} for one to five times; MATCH_RECOGNIZE repeats groups any number of times",
    ),
    (
        "PATTERN SEQ(Shelf a, «SEQ(Exit b, Exit c){2,1000}»)",
        "a pattern may have 64 components at most, and written out it has 2,001",
        "MATCH_RECOGNIZE repeats groups any number of times",
    ),
    (
        "PATTERN SEQ(Shelf a, SEQ(Exit b, «OR(Exit c, Exit d){2}»){2,3})",
        "a repeated group cannot be inside another one",
        "write one of them out, or use MATCH_RECOGNIZE",
    ),
    (
        "PATTERN SEQ(Shelf a, SEQ(«Exit b», Exit c){2}, Exit b)",
        "the variable 'b' is used in a repeated group and outside it",
        "give each component its own variable",
    ),
    (
        "PATTERN SEQ(Shelf a, SEQ(Exit b, «Exit b_1»){2})",
        "the variable 'b_1' has the name of an iteration of another one",
        "give each component its own variable",
    ),
    (
        "PATTERN SEQ(Shelf a, SEQ(Exit b, Exit c){2}) RETURN «b.tag» AS tag",
        "there is no variable 'b'",
        "the variables are a, b_1, c_1, b_2 and c_2",
    ),
    (
        "PATTERN AND(SEQ(Shelf a, «!(Exit b)», Exit c), Exit d)",
        "a negation cannot be inside AND, where its neighbours are not known",
        "put it before or after AND",
    ),
    (
        "PATTERN OR(Shelf a, Exit b) «WITHOUT Register r»",
        "WITHOUT needs a part that may have two events or more",
        "write it after a repetition such as T+ v[], or after SEQ(…)",
    ),
    (
        "PATTERN SEQ(Shelf+ a[], Exit b) WITHOUT Register «a»",
        "the variable 'a' is used twice",
        "give each component its own variable",
    ),
    (
        "PATTERN OR(Shelf a, Exit+ «a»[])",
        "the variable 'a' is used twice, for different kinds of components",
        "give each component its own variable",
    ),
    (
        "PATTERN OR(Shelf a, Register a) WHERE «a.weight» > 3",
        "'weight' is not an attribute of every alternative of 'a'",
        "give the alternatives variables of their own",
    ),
    (
        "PATTERN SEQ(Shelf a, Exit b) RETURN «c IS PRESENT» AS c",
        "there is no variable 'c'",
        "the variables are a and b",
    ),
    (
        "PATTERN SEQ(Shelf a, !(Exit b), Exit c) RETURN «b IS PRESENT» AS c",
        "'b' is negated, so it is never in a match",
        None,
    ),
    (
        "PATTERN SEQ(Shelf a, Exit b) WHERE «b IS PRESENT»",
        "IS PRESENT and IS ABSENT cannot be used in WHERE",
        "in WHERE a condition on an absent variable holds; ask in RETURN, AGG or GROUP BY",
    ),
    ("«PATTERN !(Shelf a)»", "the pattern has no positive component", "a match needs an event that happened"),
    (
        AB + "WHERE «skip_till_next_match(b, a)» {}",
        "'a' must be listed in the order of the pattern",
        "write skip_till_next_match(a, b)",
    ),
    (AB + "WHERE «skip_till_next_match(a, c)» {}", "there is no variable 'c'", "the variables are a and b"),
    (AB + "«OUTPUT SKIP TO FIRST c»", "there is no variable 'c'", "the variables are a and b"),
    (
        "PATTERN SEQ(Shelf a, !(Exit c), Exit b) «OUTPUT SKIP TO LAST c»",
        "'c' is negated, so no match has an event of it",
        None,
    ),
]

INDEXES = [
    (
        AB + "WHERE «a[i].n» > 3",
        "'a' is one event and cannot have an index",
        "write a.x, or a[] with + after its type in the pattern",
    ),
    (
        KLEENE + "WHERE «a» > 3",
        "'a' is several events, not a value",
        "write a[1].x, a[i].x, a[LEN].x or an aggregate over a[]",
    ),
    (AB + "WHERE «a.LEN» > 3", "'a' is one event and has no length", None),
    (
        KLEENE + "WHERE a«[i+1]».n > 3",
        "a[i+1] refers to an event that is chosen later",
        "write the condition with a[i] and a[i-1]",
    ),
    (
        KLEENE + "WHERE a«[2]».n > 3",
        "there is no index 'a[2]'",
        "the indexes are a[1], a[i], a[i-1], a[LEN], a[..i-1] and a[]; any other event needs a variable of its own",
    ),
    (
        KLEENE + "WHERE a«[i-2]».n > 3",
        "there is no index 'a[i-2]'",
        "the indexes are a[1], a[i], a[i-1], a[LEN], a[..i-1] and a[]; any other event needs a variable of its own",
    ),
    (KLEENE + "WHERE a«[b.LEN]».n > 3", "a[…] cannot be indexed by the length of 'b'", "write a[LEN]"),
    (
        KLEENE + "WHERE «a[].n» > 3",
        "a[] can be used only inside an aggregate such as count or sum",
        "write a[1], a[i] or a[LEN]",
    ),
    (
        KLEENE + "WHERE «a[..i-1].n» > 3",
        "a[..i-1] can be used only inside an aggregate such as count or sum",
        "write a[1], a[i] or a[LEN]",
    ),
    (
        AB + "WHERE sum(«a.n») > 3",
        "sum(…) must range over a component with +, and 'a' is one event",
        None,
    ),
    (
        AB + "WHERE max(«a.n») > 3",
        "max(…) must range over a component with +, and 'a' is one event",
        "the least and greatest of several values are least(…) and greatest(…)",
    ),
    (
        KLEENE + "WHERE sum(«a.n») > 3",
        "an aggregate must range over all events or those before this one",
        "write a[] for all of them, a[..i-1] for those before this one",
    ),
    (KLEENE + "WHERE «sum(a[].n + b[].n)» > 3", "sum(…) must range over one variable in one way", None),
    (KLEENE + "WHERE sum(«sum(a[].n)») > 3", "an aggregate cannot be inside another", None),
    (
        KLEENE + "WHERE «sum(3)» > 3",
        "sum(…) takes the events of a component with +",
        "write sum(v[].x) or sum(v[..i-1].x)",
    ),
    (KLEENE + "WHERE «sum(a[])» > 3", "sum(…) needs an attribute", "name one: sum(a[].x)"),
    (
        KLEENE + "WHERE a.n > «b.n»",
        "'a' and 'b' cannot each be several events in one condition",
        "an index chooses one event: b[1] is the first, b[LEN] the last",
    ),
    (
        KLEENE + "WHERE «a.n» > a[i].n",
        "'a' without an index cannot be in one condition with [i]",
        "write a[1], a[i] or a[LEN]",
    ),
    (
        KLEENE + "WHERE «a[i].n > b[i].n»",
        "a condition may index one variable by i, not 'a' and 'b'",
        None,
    ),
    (KLEENE + "RETURN a«[i]».n", "a[i] cannot be used in RETURN", "write a[1], a[LEN] or an aggregate over a[]"),
    (KLEENE + "RETURN P(count(«a[..i-1]»))", "a[..i-1] cannot be used in RETURN", "a[] means all of its events"),
    (
        KLEENE + "RETURN «a.n» + 1",
        "all events of a component with + are an array, and expressions cannot use arrays",
        "write an index, [1] or [LEN], or an aggregate over []",
    ),
    (
        KLEENE + "GROUP BY «a.n» AGG COUNT",
        "GROUP BY needs one value per match, and this has one per event",
        "write an index, [1] or [LEN]",
    ),
]
