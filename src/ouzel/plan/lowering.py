"""Lowering: turns the predicates of a plan into kernel tables, and finds the lanes of events that they need.

A value that depends on only one event becomes a *lane*: a column that is computed for all events before the kernel
runs. Comparisons and arithmetic between lanes become atoms and small programs. A predicate that kernels cannot express,
such as a text function of two events, is *residual*: it is tested on complete matches, column by column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Protocol

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import (
    BOOL,
    FLOAT,
    STRING,
    Aggregation,
    Attribute,
    Bound,
    Conjunct,
    Constant,
    Edge,
    EventField,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Type,
)
from ouzel.bind.normal_form import is_junction
from ouzel.errors import QueryError
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison, Instruction, Lane, Opcode, Program
from ouzel.plan.expressions import components_of, walk
from ouzel.plan.model import KeyStrategy, Plan


class Domain(Enum):
    """How the values of a lane are represented as numbers."""

    INT = "int"  # integers, booleans, dates, ticks, decimals as their unscaled digits
    FLOAT = "float"
    CODE = "code"  # text and bytes; equal codes mean equal values
    RANK = "rank"  # text and bytes; ranks have the order of the values
    TRUTH = "truth"  # 1 if a condition holds, otherwise 0: never null, never absent


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """A value of one event, and how kernels represent it."""

    expression: Bound
    domain: Domain
    # For an event whose type lacks an attribute: null, if another lane says that it is absent.
    absent_is_null: bool = False


class SupportsLane(Protocol):
    """An object that gives numbers to the lanes that lowering needs."""

    def lane(self, component: int, spec: LaneSpec) -> Lane: ...


@dataclass(slots=True)
class Lanes:
    """The lanes of each component. int64 and float64 lanes are numbered separately, as in kernels."""

    ints: dict[int, list[LaneSpec]] = field(default_factory=dict)
    floats: dict[int, list[LaneSpec]] = field(default_factory=dict)
    _numbers: dict[tuple[int, LaneSpec], int] = field(default_factory=dict, repr=False)

    def lane(self, component: int, spec: LaneSpec) -> Lane:
        floating = spec.domain is Domain.FLOAT
        known = (self.floats if floating else self.ints).setdefault(component, [])
        number = self._numbers.setdefault((component, spec), len(known))
        if number == len(known):
            known.append(spec)
        return Lane(component, number, floating)

    @property
    def int_count(self) -> int:
        return max((len(specs) for specs in self.ints.values()), default=0)

    @property
    def float_count(self) -> int:
        return max((len(specs) for specs in self.floats.values()), default=0)


@dataclass(frozen=True, slots=True)
class LoweredConjunct:
    alternatives: tuple[Alternative, ...]
    components: frozenset[int]


@dataclass(frozen=True, slots=True)
class Lowered:
    """What the kernel tests at which step, and what is tested on complete matches."""

    lanes: Lanes
    construction: tuple[LoweredConjunct, ...]
    selection: tuple[LoweredConjunct, ...]
    forbidding: dict[int, tuple[LoweredConjunct, ...]]
    residual: tuple[Conjunct, ...]


class Inexpressible(Exception):
    """Raised for an expression that the kernels have no instruction for."""


def lower(plan: Plan) -> Lowered:
    """The lanes and predicate tables of a plan."""
    lanes = Lanes()
    residual: list[Conjunct] = []
    equalities = _dynamic_equalities(plan) if plan.key_strategy is KeyStrategy.DYNAMIC else []
    construction = _lower_all([*(e for e in equalities if e.negative is None), *plan.construction], lanes, residual)
    selection = _lower_all(plan.selection, lanes, residual)
    forbidding = {}
    for negative in plan.negatives:
        conjuncts = [*(e for e in equalities if e.negative == negative.position)]
        conjuncts += plan.forbidding.get(negative.position, ())
        refused: list[Conjunct] = []
        forbidding[negative.position] = _lower_all(conjuncts, lanes, refused)
        if refused:
            raise QueryError(
                f"this condition on the negative component '{negative.variable}' applies a function to values "
                "of several events",
                text=plan.query.text,
                start=refused[0].span.start,
                end=refused[0].span.end,
                hint="a function of one event is fine, and so are + - * / % and comparisons between events",
            )
    return Lowered(lanes, construction, selection, forbidding, tuple(residual))


def _dynamic_equalities(plan: Plan) -> list[Conjunct]:
    """The parts of the key after the first one, as equalities between adjacent components (SASE 4.2.2, dynamic
    filtering).
    """
    conjuncts = []
    for part in plan.key[1:]:
        positives = [c.position for c in plan.positives]
        pairs: list[tuple[int, int, int | None]] = [(left, right, None) for left, right in pairwise(positives)]
        pairs += [(positives[0], n.position, n.position) for n in plan.negatives if n.position in part.expressions]
        for left, right, negative in pairs:
            equality = Operation("=", (part.expressions[left], part.expressions[right]), type=BOOL)
            conjuncts.append(Conjunct((equality,), frozenset((left, right)), negative, right, Edge.BEGIN))
    return conjuncts


def _lower_all(
    conjuncts: Iterable[Conjunct], lanes: SupportsLane, residual: list[Conjunct]
) -> tuple[LoweredConjunct, ...]:
    lowered = []
    for conjunct in conjuncts:
        try:
            alternatives = tuple(_alternative(comparison, conjunct, lanes) for comparison in conjunct.comparisons)
        except Inexpressible:
            residual.append(conjunct)
        else:
            lowered.append(LoweredConjunct(alternatives, conjunct.components))
    return tuple(lowered)


def _alternative(comparison: Bound, conjunct: Conjunct, lanes: SupportsLane) -> Alternative:
    if conjunct.components and not components_of(comparison):
        # It reads no event (`:mode = 'all' OR n.x > 3`), so any event of the conjunct may carry it.
        lane = lanes.lane(min(conjunct.components), LaneSpec(comparison, Domain.TRUTH))
        return Atom(lane, Comparison.EQUAL, 1)
    return alternative_of(comparison, lanes)


def alternative_of(comparison: Bound, lanes: SupportsLane) -> Alternative:
    """One comparison, or ANDs and ORs of comparisons, in the form that kernels test. Raises Inexpressible if that is
    impossible.
    """
    if _of_one_event(comparison):
        return Atom(_lane(comparison, lanes, Domain.TRUTH), Comparison.EQUAL, 1)
    if is_junction(comparison):
        return Program(tuple(_junction(comparison, lanes)))
    if isinstance(comparison, Operation) and comparison.operator in _COMPARISONS:
        left, right = comparison.operands
        if _of_one_event(left) and _of_one_event(right):
            domain = comparison_domain(comparison.operator, left.type)
            return Atom(_lane(left, lanes, domain), _COMPARISONS[comparison.operator], _lane(right, lanes, domain))
    return Program(tuple(_instructions(comparison, lanes)))


def _junction(condition: Operation, lanes: SupportsLane) -> list[Instruction]:
    """The program of ANDs and ORs of comparisons of several events. In a kernel, a program that reads an absent
    attribute is true as a whole, but here only the comparison must be true. So absent attributes are null here, and
    each comparison is joined by OR to a test that one of its attributes is absent.
    """
    anchor = next((part for part in walk(condition) if isinstance(part, Attribute | Intrinsic)), None)
    codes = []
    for operand in condition.operands:
        if not components_of(operand) and anchor is not None:
            lane = lanes.lane(anchor.component, LaneSpec(operand, Domain.TRUTH))
            codes.append([Instruction(Opcode.LOAD_INT, lane=lane)])
        elif _of_one_event(operand):
            codes.append([Instruction(Opcode.LOAD_INT, lane=_lane(operand, lanes, Domain.TRUTH))])
        elif is_junction(operand):
            codes.append(_junction(operand, lanes))
        else:
            absences = [_absence(part) for part in walk(operand) if isinstance(part, Attribute)]
            tests = [_instructions(operand, _AbsentIsNull(lanes))]
            for absence in dict.fromkeys(one for one in absences if one is not None):
                tests.append([Instruction(Opcode.LOAD_INT, lane=_lane(absence, lanes, Domain.TRUTH))])
            codes.append(_chain(tests, Instruction(Opcode.OR)))
    return _chain(codes, Instruction(Opcode.AND if condition.operator == "and" else Opcode.OR))


class _AbsentIsNull:
    """Lanes that are null if the event's type lacks the attribute."""

    def __init__(self, lanes: SupportsLane) -> None:
        self._lanes = lanes

    def lane(self, component: int, spec: LaneSpec) -> Lane:
        return self._lanes.lane(component, replace(spec, absent_is_null=True))


def _absence(attribute: Attribute) -> Bound | None:
    """The condition that the type of an event lacks an attribute; None if every type has it."""
    if attribute.present_in is None:
        return None
    own_type = Intrinsic(attribute.component, EventField.TYPE, attribute.at, type=STRING)
    having = [Constant(name, type=STRING) for name in sorted(attribute.present_in)]
    return Operation("not", (Operation("in", (own_type, *having), type=BOOL),), type=BOOL)


def _of_one_event(expression: Bound) -> bool:
    """Whether an expression can be a lane: it reads only one event, or is itself a number that a run keeps."""
    if isinstance(expression, Length | Aggregation):
        return True
    running = any(isinstance(part, Length | Aggregation) for part in walk(expression))
    owners = components_of(expression)
    # Components below -1 are registers and parameters of the algebra, not events; nothing of them can be precomputed.
    return len(owners) == 1 and not running and (min(owners) >= -1 or isinstance(expression, Attribute))


_COMPARISONS = {
    "=": Comparison.EQUAL,
    "!=": Comparison.NOT_EQUAL,
    "<": Comparison.LESS,
    "<=": Comparison.LESS_EQUAL,
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_EQUAL,
}


def comparison_domain(operator: str, type_: Type) -> Domain:
    if type_.kind in (Kind.STRING, Kind.BINARY):
        return Domain.CODE if operator in ("=", "!=") else Domain.RANK
    return _domain(type_)


def _domain(type_: Type) -> Domain:
    if type_.kind is Kind.FLOAT:
        return Domain.FLOAT
    if type_.kind in (Kind.INT, Kind.BOOL, Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL, Kind.DURATION):
        return Domain.INT
    raise Inexpressible


def _lane(expression: Bound, lanes: SupportsLane, domain: Domain) -> Lane:
    (component,) = components_of(expression)
    return lanes.lane(component, LaneSpec(expression, domain))


def program_of(expression: Bound, lanes: SupportsLane) -> Program:
    """The program that computes an expression. Raises Inexpressible if kernels cannot."""
    return Program(tuple(_instructions(expression, lanes)))


def _instructions(expression: Bound, lanes: SupportsLane) -> list[Instruction]:
    """The postfix program of an expression over several events."""
    if isinstance(expression, Constant):
        return [_constant(expression)]
    if _of_one_event(expression):
        domain = _domain(expression.type)
        opcode = Opcode.LOAD_FLOAT if domain is Domain.FLOAT else Opcode.LOAD_INT
        return [Instruction(opcode, lane=_lane(expression, lanes, domain))]
    if not isinstance(expression, Operation):
        raise Inexpressible
    return _operation(expression, lanes)


def _constant(constant: Constant) -> Instruction:
    if constant.value is None:
        return Instruction(Opcode.NULL)
    if _domain(constant.type) is Domain.FLOAT:
        return Instruction(Opcode.FLOAT, constant=float(constant.value))
    if constant.type.kind is Kind.DECIMAL:
        return Instruction(Opcode.INT, constant=int(constant.value.scaleb(constant.type.scale)))  # type: ignore[union-attr]
    return Instruction(Opcode.INT, constant=int(constant.value))


def _operation(expression: Operation, lanes: SupportsLane) -> list[Instruction]:
    operator, operands = expression.operator, expression.operands
    if operator in _COMPARISONS:
        return _compare(operator, operands[0], operands[1], lanes)
    if operator == "in":
        tests = [_compare("=", operands[0], item, lanes) for item in operands[1:]]
        return _chain(tests, Instruction(Opcode.OR))
    if operator == "/":
        return [*_as_float(operands[0], lanes), *_as_float(operands[1], lanes), _DIVIDE]
    codes = [_instructions(operand, lanes) for operand in operands]
    if operator in ("and", "or"):
        return _chain(codes, Instruction(Opcode.AND if operator == "and" else Opcode.OR))
    if operator == "case":
        return _case(codes)
    if operator == "saturate":
        return _saturate(codes[0], operands[0].type, expression.type)
    if operator == "cast":
        return [*codes[0], *_cast(operands[0].type, expression.type)]
    if expression.type.kind is Kind.DECIMAL:
        return _decimal(expression, codes)
    floating = _domain(expression.type if operator != "is_null" else operands[0].type) is Domain.FLOAT
    if operator in ("least", "greatest", "coalesce"):
        opcode = _PLAIN.get((operator, floating))
        assert opcode is not None
        return _chain(codes, Instruction(opcode))
    opcode = _PLAIN.get((operator, floating))
    if opcode is None:
        raise Inexpressible
    return [*(step for code in codes for step in code), Instruction(opcode)]


_DIVIDE = Instruction(Opcode.DIVIDE_FLOAT)
_PLAIN: dict[tuple[str, bool], Opcode] = {
    ("+", False): Opcode.ADD_INT,
    ("-", False): Opcode.SUBTRACT_INT,
    ("*", False): Opcode.MULTIPLY_INT,
    ("%", False): Opcode.MODULO_INT,
    ("negate", False): Opcode.NEGATE_INT,
    ("abs", False): Opcode.ABS_INT,
    ("least", False): Opcode.LEAST_INT,
    ("greatest", False): Opcode.GREATEST_INT,
    ("coalesce", False): Opcode.COALESCE,
    ("+", True): Opcode.ADD_FLOAT,
    ("-", True): Opcode.SUBTRACT_FLOAT,
    ("*", True): Opcode.MULTIPLY_FLOAT,
    ("%", True): Opcode.MODULO_FLOAT,
    ("negate", True): Opcode.NEGATE_FLOAT,
    ("abs", True): Opcode.ABS_FLOAT,
    ("least", True): Opcode.LEAST_FLOAT,
    ("greatest", True): Opcode.GREATEST_FLOAT,
    ("coalesce", True): Opcode.COALESCE,
    ("not", False): Opcode.NOT,
    ("is_null", False): Opcode.IS_NULL,
    ("is_null", True): Opcode.IS_NULL,
}


def _compare(operator: str, left: Bound, right: Bound, lanes: SupportsLane) -> list[Instruction]:
    if left.type.kind in (Kind.STRING, Kind.BINARY):
        # Text is compared as codes or ranks, so each side must be a value of one event. A constant has neither.
        whole = Operation(operator, (left, right), type=BOOL)
        if _of_one_event(whole):
            return _instructions(whole, lanes)
        domain = comparison_domain(operator, left.type)
        sides = []
        for side in (left, right):
            if not _of_one_event(side):
                raise Inexpressible
            sides.append(Instruction(Opcode.LOAD_INT, lane=_lane(side, lanes, domain)))
        return [*sides, Instruction(Opcode.COMPARE_INT, comparison=_COMPARISONS[operator])]
    known = left if left.type.kind is not Kind.NULL else right
    opcode = Opcode.COMPARE_FLOAT if _domain(known.type) is Domain.FLOAT else Opcode.COMPARE_INT
    code = [*_instructions(left, lanes), *_instructions(right, lanes)]
    return [*code, Instruction(opcode, comparison=_COMPARISONS[operator])]


def _chain(codes: list[list[Instruction]], join: Instruction) -> list[Instruction]:
    result = list(codes[0])
    for code in codes[1:]:
        result += [*code, join]
    return result


def _case(codes: list[list[Instruction]]) -> list[Instruction]:
    """The program of WHEN … THEN … pairs and the ELSE value, nested from the right: condition, result, otherwise,
    CASE.
    """
    result = codes[-1]
    for i in range(len(codes) - 3, -1, -2):
        result = [*codes[i], *codes[i + 1], *result, Instruction(Opcode.CASE)]
    return result


def _as_float(operand: Bound, lanes: SupportsLane) -> list[Instruction]:
    """The program of an operand as a float. A decimal lane is converted before the kernel, where all digits are
    known.
    """
    if operand.type.kind is Kind.DECIMAL and _of_one_event(operand):
        return _instructions(Operation("cast", (operand,), type=FLOAT), lanes)
    return [*_instructions(operand, lanes), *_cast(operand.type, FLOAT)]


def _cast(source: Type, target: Type) -> list[Instruction]:
    if source.kind is Kind.NULL or source == target:
        return []
    if target.kind is Kind.FLOAT:
        if source.kind is Kind.FLOAT:
            return []
        if source.kind in (Kind.INT, Kind.DURATION):
            return [Instruction(Opcode.TO_FLOAT)]
        if source.kind is Kind.DECIMAL:
            scale = Instruction(Opcode.FLOAT, constant=float(10**source.scale))
            return [Instruction(Opcode.TO_FLOAT), scale, _DIVIDE]
    if target.kind is Kind.DECIMAL and source.kind in (Kind.INT, Kind.DECIMAL):
        shift = target.scale - (source.scale if source.kind is Kind.DECIMAL else 0)
        if shift == 0:
            return _null_beyond_digits(target) if source.kind is Kind.INT else []
        if shift > 0:
            scaled = [Instruction(Opcode.INT, constant=10**shift), Instruction(Opcode.MULTIPLY_INT)]
            return [*scaled, *_null_beyond_digits(target)]
    raise Inexpressible


def _saturate(code: list[Instruction], source: Type, target: Type) -> list[Instruction]:
    """The program of a number at a finer scale. A value that needs more than 18 digits there becomes the first one that
    does.
    """
    scale = source.scale if source.kind is Kind.DECIMAL else 0
    limit = 10 ** (DECIMAL_DIGITS_MAX - target.scale + scale)
    for end, comparison in ((limit, Comparison.GREATER), (-limit, Comparison.LESS)):
        bound = Instruction(Opcode.INT, constant=end)
        beyond = [*code, bound, Instruction(Opcode.COMPARE_INT, comparison=comparison)]
        code = [*beyond, bound, *code, Instruction(Opcode.CASE)]
    shift = 10 ** (target.scale - scale)
    return [*code, Instruction(Opcode.INT, constant=shift), Instruction(Opcode.MULTIPLY_INT)]


def _decimal(expression: Operation, codes: list[list[Instruction]]) -> list[Instruction]:
    """The program of exact decimal arithmetic: integers of one scale, because kernels do not round."""
    operator, operands = expression.operator, expression.operands
    if operator == "*":
        if sum(operand.type.scale for operand in operands) != expression.type.scale:
            raise Inexpressible
        return [*codes[0], *codes[1], Instruction(Opcode.MULTIPLY_INT), *_null_beyond_digits(expression.type)]
    opcode = _PLAIN.get((operator, False))
    if opcode is None:
        raise Inexpressible
    aligned = [[*code, *_cast(operand.type, expression.type)] for code, operand in zip(codes, operands, strict=True)]
    if operator in ("least", "greatest", "coalesce"):
        return _chain(aligned, Instruction(opcode))
    result = [*(step for code in aligned for step in code), Instruction(opcode)]
    return [*result, *_null_beyond_digits(expression.type)] if operator in ("+", "-") else result


def _null_beyond_digits(type_: Type) -> list[Instruction]:
    """A program that makes a decimal null if it needs more digits than its precision. It adds an offset that moves the
    limit to that of int64, where overflow gives null, and subtracts the offset again. The largest precision does not
    need this.
    """
    if type_.precision < DECIMAL_DIGITS_MAX:
        return []
    above, below = 2**63 - 10**DECIMAL_DIGITS_MAX, 2**63 - 10**DECIMAL_DIGITS_MAX + 1
    moves = (
        (above, Opcode.ADD_INT),
        (above, Opcode.SUBTRACT_INT),
        (below, Opcode.SUBTRACT_INT),
        (below, Opcode.ADD_INT),
    )
    return [step for by, opcode in moves for step in (Instruction(Opcode.INT, constant=by), Instruction(opcode))]
