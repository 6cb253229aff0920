"""Patients who take medicines from tagged bottles, and their true overdoses (SASE 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError

MINUTE_US = 60 * 1_000_000
HOUR_US = 60 * MINUTE_US

MEDICINES = ("Antibiotics", "Ibuprofen", "Paracetamol", "Insulin", "Warfarin")
NAMES = ("John", "Mary", "Ahmed", "Wei", "Olga", "Carlos", "Fatima", "Sven", "Aiko", "Priya")

# Doses of a course are more than the query's four hours apart; an accidental second dose follows within two hours.
GAP_US = (330 * MINUTE_US, 600 * MINUTE_US)
SOON_US = (2 * MINUTE_US, 75 * MINUTE_US)
LIMIT_MG = 1_000


@dataclass(frozen=True)
class MedicineLog:
    """Events MedicineTaken(name, medicine, amount) in order of time, and the pairs of doses that are an overdose."""

    events: pa.Table
    overdoses: pa.Table


def medicine(events: int = 100_000, *, patients: int = 1_000, seed: int = 0, date: str = "2024-05-01") -> MedicineLog:
    """Doses taken by patients. Some are taken twice, which is an overdose if both together exceed 1,000.

    The overdoses are exactly the pairs of doses of one patient and medicine, less than four hours apart, of more than
    1,000 mg together. The first patient is John.

    >>> log = medicine(5_000, patients=50, seed=3)
    >>> log.events.num_rows, log.overdoses.num_rows
    (5000, 96)
    >>> log.overdoses.column_names
    ['name', 'medicine', 'first_at', 'second_at', 'amount']
    """
    if events < 0:
        raise InputError(f"the number of events must not be negative, got {events}")
    if patients < 1:
        raise InputError(f"there must be at least one patient, got {patients}")
    rng = np.random.default_rng(seed)
    extra = events // 25
    planned = events - extra
    midnight_us = int(np.datetime64(date, "us").astype(np.int64))

    # A course is one patient and one medicine, with doses over several days.
    course = np.sort(rng.integers(patients * len(MEDICINES), size=planned))
    walked_us = np.cumsum(rng.integers(*GAP_US, size=planned))
    first_of_course = np.searchsorted(course, course, side="left")
    time_us = midnight_us + walked_us - walked_us[first_of_course] + (course * 7919) % (24 * 60) * MINUTE_US
    amount = rng.choice([250, 400, 500], size=planned)

    # Half of the second doses are harmless: together with the first they do not exceed the limit.
    doubled = np.sort(rng.permutation(planned)[:extra])
    second_us = time_us[doubled] + rng.integers(*SOON_US, size=len(doubled))
    harmless = rng.random(len(doubled)) < 0.5
    above = LIMIT_MG - amount[doubled] + rng.choice([50, 100, 250], size=len(doubled))
    below = LIMIT_MG - amount[doubled] - rng.choice([0, 50, 250], size=len(doubled))
    second_amount = np.where(harmless, below, above)

    over = np.flatnonzero(~harmless)
    over = over[np.argsort(second_us[over], kind="stable")]
    all_course = np.concatenate([course, course[doubled]])
    all_time_us = np.concatenate([time_us, second_us])
    all_amount = np.concatenate([amount, second_amount])
    order = np.argsort(all_time_us, kind="stable")
    table = pa.table(
        {
            "ts": pa.array(all_time_us[order]).cast(pa.timestamp("us")),
            "type": pa.DictionaryArray.from_arrays(np.zeros(len(order), np.int8), pa.array(["MedicineTaken"])).cast(
                pa.string()
            ),
            "name": _names(all_course[order], patients),
            "medicine": _medicines(all_course[order]),
            "amount": pa.array(all_amount[order]),
        }
    )
    overdoses = pa.table(
        {
            "name": _names(course[doubled][over], patients),
            "medicine": _medicines(course[doubled][over]),
            "first_at": pa.array(time_us[doubled][over]).cast(pa.timestamp("us")),
            "second_at": pa.array(second_us[over]).cast(pa.timestamp("us")),
            "amount": pa.array(amount[doubled][over] + second_amount[over]),
        }
    )
    return MedicineLog(events=table, overdoses=overdoses)


def _names(course: np.ndarray, patients: int) -> pa.Array:
    rounds = range((patients - 1) // len(NAMES) + 1)
    names = [name if not number else f"{name} {number + 1}" for number in rounds for name in NAMES][:patients]
    return pa.DictionaryArray.from_arrays((course // len(MEDICINES)).astype(np.int32), pa.array(names)).cast(
        pa.string()
    )


def _medicines(course: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays((course % len(MEDICINES)).astype(np.int8), pa.array(MEDICINES)).cast(
        pa.string()
    )
