/* Events as Python and Arrow have them, read into the typed arrays of kernels/rows.py, which has the same readers in
 * Python, and given as Arrow has them. A reader writes behind the rows that are there and counts nothing: if it refuses, nothing has changed.
 * Part of glue.c, whose view of numpy's arrays it uses. */

/* The words of `Rows.memory`. */
enum { NUMBER_WORDS, OFFSETS, DATA, VALID, CAPACITY, DATA_CAPACITY, COUNT, TIME, OLDEST, NEWEST, MOMENT, NULLS };
enum { DONE, DATA_FULL, REFUSED };

typedef struct {
    int64_t *words, *numbers, *ticks;
    int32_t *offsets;
    uint8_t *data, *valid;
    int64_t capacity, data_capacity, count;
} rows;

static rows rows_at(PyObject *memory) {
    int64_t *words = (int64_t *)((array *)memory)->data;
    rows one = {words, (int64_t *)(intptr_t)words[NUMBER_WORDS], NULL, (int32_t *)(intptr_t)words[OFFSETS],
                (uint8_t *)(intptr_t)words[DATA], (uint8_t *)(intptr_t)words[VALID], words[CAPACITY],
                words[DATA_CAPACITY], words[COUNT]};
    if (words[TIME] >= 0) one.ticks = one.numbers + words[TIME] * one.capacity;
    return one;
}

/* The oldest and the newest tick of some new rows. */
static void note_ticks(const rows *to, int64_t more) {
    int64_t oldest = INT64_MAX, newest = INT64_MIN;
    for (int64_t i = to->count; to->ticks && i < to->count + more; i++) {
        oldest = to->ticks[i] < oldest ? to->ticks[i] : oldest;
        newest = to->ticks[i] > newest ? to->ticks[i] : newest;
    }
    to->words[OLDEST] = oldest;
    to->words[NEWEST] = newest;
}

static int64_t part_of(PyObject *duration, PyObject *name) {
    PyObject *part = PyObject_GetAttr(duration, name);
    int64_t number = part ? PyLong_AsLongLong(part) : 0;
    Py_XDECREF(part);
    return number;
}

/* The microseconds of a timedelta. */
static int64_t microseconds_of(PyObject *duration) {
    static PyObject *days, *seconds, *microseconds;
    if (!days) days = PyUnicode_InternFromString("days");
    if (!seconds) seconds = PyUnicode_InternFromString("seconds");
    if (!microseconds) microseconds = PyUnicode_InternFromString("microseconds");
    return (part_of(duration, days) * 86400 + part_of(duration, seconds)) * 1000000 + part_of(duration, microseconds);
}

/* read_dicts(list, names, kinds, memory, datetime, epoch): a kind is q, d, b, s, t or n for each name. */
static PyObject *read_dicts(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count) {
    PyObject *list = arguments[0], *names = arguments[1], *datetime = arguments[4], *epochs = arguments[5];
    const char *kinds = PyBytes_AsString(arguments[2]);
    rows to = rows_at(arguments[3]);
    Py_ssize_t more = PyList_Size(list), columns = PyTuple_Size(names);
    (void)self, (void)argument_count;
    for (Py_ssize_t i = 0; i < more; i++) {
        PyObject *row = PyList_GetItem(list, i);
        if (!row || Py_TYPE(row) != &PyDict_Type) return PyLong_FromLong(REFUSED);
        int64_t at = to.count + i, number = 0, text = 0, found = 0;
        for (Py_ssize_t column = 0; column < columns; column++) {
            char kind = kinds[column];
            PyObject *value = PyDict_GetItemWithError(row, PyTuple_GetItem(names, column));
            int is_null = !value || value == Py_None, fits = 1;
            if (!value && PyErr_Occurred()) goto refuse;
            found += value != NULL;
            to.valid[column * to.capacity + at] = (uint8_t)!is_null;
            if (is_null) to.words[NULLS + column] = 1;
            if (kind == 's') {
                int32_t *offset = to.offsets + text * (to.capacity + 1) + at;
                Py_ssize_t size = 0;
                const char *bytes = NULL;
                if (!is_null) {
                    if (Py_TYPE(value) != &PyUnicode_Type || !(bytes = PyUnicode_AsUTF8AndSize(value, &size))) goto refuse;
                    if (*offset + size > to.data_capacity) return PyLong_FromLong(DATA_FULL);
                    memcpy(to.data + text * to.data_capacity + *offset, bytes, (size_t)size);
                }
                offset[1] = *offset + (int32_t)size;
                text++;
                continue;
            }
            int64_t word = 0;
            if (!is_null && kind == 'q') {
                int overflow = 0;
                fits = Py_TYPE(value) == &PyLong_Type;
                word = fits ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
                fits = fits && !overflow;
            } else if (!is_null && kind == 'd') {
                double real = 0;
                fits = Py_TYPE(value) == &PyFloat_Type;
                if (fits) real = PyFloat_AsDouble(value);
                memcpy(&word, &real, 8);
            } else if (!is_null && kind == 'b') {
                fits = value == Py_True || value == Py_False;
                word = value == Py_True;
            } else if (!is_null && kind == 't') {
                /* A time of the other kind, with a zone or without one, cannot be subtracted. */
                PyObject *epoch = PyTuple_GetItem(epochs, column), *since = NULL;
                fits = (PyObject *)Py_TYPE(value) == datetime && (since = PyNumber_Subtract(value, epoch));
                word = fits ? microseconds_of(since) : 0;
                Py_XDECREF(since);
            } else if (!is_null) {
                fits = 0;
            }
            if (!fits || PyErr_Occurred()) goto refuse;
            to.numbers[number++ * to.capacity + at] = word;
        }
        if (found != PyDict_Size(row)) goto refuse;
        continue;
    refuse:
        PyErr_Clear();
        return PyLong_FromLong(REFUSED);
    }
    note_ticks(&to, more);
    return PyLong_FromLong(DONE);
}

/* Arrow's C data interface. */
struct arrow {
    int64_t length, null_count, offset, buffer_count, child_count;
    const void **buffers;
    struct arrow **children, *dictionary;
    void (*release)(struct arrow *);
    void *private_data;
};

static int bit(const uint8_t *bits, int64_t place) { return bits[place >> 3] >> (place & 7) & 1; }

/* The offsets and bytes of texts; 0 if there is no room. */
#define READ_TEXTS(width, offset_at)                                                               \
    static int read_texts_##width(rows *to, int64_t text, const void *const *buffers, int64_t first, int64_t more) { \
        const offset_at *from = (const offset_at *)buffers[1] + first;                             \
        int32_t *offsets = to->offsets + text * (to->capacity + 1) + to->count;                    \
        int64_t size = from[more] - from[0], moved = offsets[0] - (int64_t)from[0];                \
        if (offsets[0] + size > to->data_capacity) return 0;                                       \
        if (size) memcpy(to->data + text * to->data_capacity + offsets[0], (const char *)buffers[2] + from[0], (size_t)size); \
        for (int64_t i = 1; i <= more; i++) offsets[i] = (int32_t)(from[i] + moved);               \
        return 1;                                                                                  \
    }
READ_TEXTS(32, int32_t)
READ_TEXTS(64, int64_t)

/* read_batch(capsule, kinds, memory): a kind is b, s, S, n or the number of bytes for each column. */
static PyObject *read_batch(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count) {
    struct arrow *batch = PyCapsule_GetPointer(arguments[0], "arrow_array");
    const char *kinds = PyBytes_AsString(arguments[1]);
    rows to = rows_at(arguments[2]);
    int64_t number = 0, text = 0;
    (void)self, (void)argument_count;
    if (!batch) return NULL;
    for (int64_t column = 0; column < batch->child_count; column++) {
        const struct arrow *one = batch->children[column];
        int64_t first = one->offset + batch->offset, more = batch->length;
        const uint8_t *validity = kinds[column] == 'n' ? NULL : one->buffers[0];
        uint8_t *valid = to.valid + column * to.capacity + to.count;
        int64_t *words = to.numbers + number * to.capacity + to.count;
        memset(valid, kinds[column] != 'n', (size_t)more);
        if (kinds[column] == 'n' && more) to.words[NULLS + column] = 1;
        if (validity && one->null_count) {
            uint8_t all = 1;
            for (int64_t i = 0; i < more; i++) all &= valid[i] = (uint8_t)bit(validity, first + i);
            if (!all) to.words[NULLS + column] = 1;
        }
        switch (kinds[column]) {
        case 's':
            if (!read_texts_32(&to, text++, one->buffers, first, more)) return PyLong_FromLong(DATA_FULL);
            continue;
        case 'S':
            if (!read_texts_64(&to, text++, one->buffers, first, more)) return PyLong_FromLong(DATA_FULL);
            continue;
        case 'n': memset(words, 0, (size_t)more * 8); break;
        case 'b': for (int64_t i = 0; i < more; i++) words[i] = bit(one->buffers[1], first + i); break;
        case '8': memcpy(words, (const int64_t *)one->buffers[1] + first, (size_t)more * 8); break;
        case '4': for (int64_t i = 0; i < more; i++) words[i] = ((const int32_t *)one->buffers[1])[first + i]; break;
        case '2': for (int64_t i = 0; i < more; i++) words[i] = ((const int16_t *)one->buffers[1])[first + i]; break;
        default: for (int64_t i = 0; i < more; i++) words[i] = ((const int8_t *)one->buffers[1])[first + i];
        }
        number++;
    }
    note_ticks(&to, batch->length);
    return PyLong_FromLong(DONE);
}

/* A block of memory that is released as one: the array of a batch, those of its columns, and what they hold. */
typedef struct {
    uint8_t *memory, *next;
} block;

static void *cut(block *from, int64_t size) {
    uint8_t *found = from->next;
    from->next += (size + 63) & ~(int64_t)63;
    return found;
}

static void release_block(struct arrow *batch) {
    void *memory = batch->private_data;
    batch->release = NULL;
    free(memory);
}

static void release_column(struct arrow *column) { column->release = NULL; }

/* Where a column of matches comes from: see give_batch. */
enum { TICK = -1, ITSELF = -2 };
typedef struct {
    int32_t place, column;
    const int32_t *slots;
    const int64_t *numbers, *words;
    int64_t base;
    const uint8_t *valid;
} gathered;

/* The row of the event of a match; -1 if there is none, or its value is null. */
static int64_t row_of(const gathered *from, int64_t match) {
    int32_t slot = from->slots[match];
    if (slot < 0) return -1;
    int64_t row = from->numbers[slot] - from->base;
    return from->valid && !from->valid[row] ? -1 : row;
}

/* give_batch(memory, ticks, numbers, base, slots, count, columns, kinds, bits, first_tick): columns of matches, each of
 * one position, as an array of the C data interface; its address, or 0 if it is too large.
 *
 * The event of match m at position p is in slot slots[p, m]; a negative slot means that there is none. Its row is
 * numbers[slot] - base. A column is a position, the place among the numbers or texts, and the column of the rows that
 * says which are null. The place TICK is the time of the event: `ticks` are moments of 2^bits for each tick since
 * `first_tick`. The place ITSELF is the number in `slots`. For the kinds see read_batch. */
static PyObject *give_batch(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count) {
    rows from = rows_at(arguments[0]);
    const int64_t *ticks = (int64_t *)((array *)arguments[1])->data, *numbers = (int64_t *)((array *)arguments[2])->data;
    const array *slots = (array *)arguments[4], *columns = (array *)arguments[6];
    const int32_t *specs = (int32_t *)columns->data;
    const char *kinds = PyBytes_AsString(arguments[7]);
    int64_t base = PyLong_AsLongLong(arguments[3]), count = PyLong_AsLongLong(arguments[5]), width = columns->shape[0];
    int64_t bits = PyLong_AsLongLong(arguments[8]), first_tick = PyLong_AsLongLong(arguments[9]);
    int64_t size = (width + 1) * (int64_t)(sizeof(struct arrow) + 4 * sizeof(void *) + 384) + 2 * (count / 8 + 64);
    (void)self, (void)argument_count;
    for (int64_t i = 0; i < width; i++) {
        const int32_t *spec = specs + 3 * i, *own = (int32_t *)slots->data + spec[0] * slots->shape[1];
        size += count / 8 + 8 * (count + 1);
        if (kinds[i] != 's' && kinds[i] != 'S') continue;
        const int32_t *offsets = from.offsets + spec[1] * (from.capacity + 1);
        int64_t texts = 0;
        for (int64_t match = 0; match < count; match++) {
            if (own[match] < 0) continue;
            int64_t row = numbers[own[match]] - base;
            texts += offsets[row + 1] - offsets[row];
        }
        if (texts > INT32_MAX) return PyLong_FromLong(0);
        size += texts;
    }
    block memory = {malloc((size_t)size + 64), NULL};
    if (!memory.memory) return PyErr_NoMemory();
    memory.next = (uint8_t *)(((uintptr_t)memory.memory + 63) & ~(uintptr_t)63);
    struct arrow *batch = cut(&memory, sizeof *batch), *children = cut(&memory, (width + 1) * (int64_t)sizeof *children);
    struct arrow **pointers = cut(&memory, (width + 1) * (int64_t)sizeof *pointers);
    const void **buffers = cut(&memory, sizeof *buffers);
    buffers[0] = NULL;
    *batch = (struct arrow){count, 0, 0, 1, width, buffers, pointers, NULL, release_block, memory.memory};
    for (int64_t i = 0; i < width; i++) {
        const int32_t *spec = specs + 3 * i;
        char kind = kinds[i];
        int is_text = kind == 's' || kind == 'S', is_input = spec[1] >= 0;
        gathered one = {spec[1], spec[2], (int32_t *)slots->data + spec[0] * slots->shape[1], numbers, NULL, base, NULL};
        if (is_input && from.words[NULLS + one.column]) one.valid = from.valid + one.column * from.capacity;
        if (is_input && !is_text) one.words = from.numbers + one.place * from.capacity;
        const void **own = cut(&memory, 3 * (int64_t)sizeof *own);
        int64_t nulls = 0;
        uint8_t *validity = cut(&memory, (count + 7) / 8);
        memset(validity, 255, (size_t)(count + 7) / 8);
        for (int64_t match = 0; one.place != ITSELF && match < count; match++) {
            if (row_of(&one, match) >= 0) continue;
            validity[match >> 3] &= (uint8_t)~(1 << (match & 7));
            nulls++;
        }
        own[0] = nulls ? validity : NULL;
        if (is_text) {
            int64_t per = kind == 's' ? 4 : 8, used = 0;
            const int32_t *offsets = from.offsets + one.place * (from.capacity + 1);
            const uint8_t *data = from.data + one.place * from.data_capacity;
            uint8_t *made = cut(&memory, per * (count + 1)), *bytes = memory.next;
            for (int64_t match = 0; match <= count; match++) {
                if (per == 4) ((int32_t *)made)[match] = (int32_t)used;
                else ((int64_t *)made)[match] = used;
                int64_t row = match < count ? row_of(&one, match) : -1;
                if (row < 0) continue;
                memcpy(bytes + used, data + offsets[row], (size_t)(offsets[row + 1] - offsets[row]));
                used += offsets[row + 1] - offsets[row];
            }
            own[1] = made;
            own[2] = cut(&memory, used);
        } else if (kind == 'n') {
            nulls = count;
        } else {
            uint8_t *made = cut(&memory, kind == 'b' ? (count + 7) / 8 : 8 * count);
            if (kind == 'b') memset(made, 0, (size_t)(count + 7) / 8);
            for (int64_t match = 0; match < count; match++) {
                int64_t word = one.slots[match];
                if (one.place != ITSELF) {
                    int64_t row = row_of(&one, match);
                    word = row < 0 ? 0 : one.place == TICK ? (ticks[row] >> bits) + first_tick : one.words[row];
                }
                switch (kind) {
                case 'b': made[match >> 3] |= (uint8_t)((word & 1) << (match & 7)); break;
                case '8': ((int64_t *)made)[match] = word; break;
                case '4': ((int32_t *)made)[match] = (int32_t)word; break;
                case '2': ((int16_t *)made)[match] = (int16_t)word; break;
                default: ((int8_t *)made)[match] = (int8_t)word;
                }
            }
            own[1] = made;
        }
        children[i] = (struct arrow){count, nulls, 0, is_text ? 3 : kind == 'n' ? 0 : 2, 0, own, NULL, NULL, release_column, NULL};
        pointers[i] = children + i;
    }
    return PyLong_FromVoidPtr(batch);
}

static PyMethodDef row_methods[] = {{"read_dicts", (PyCFunction)(void (*)(void))read_dicts, METH_FASTCALL, NULL},
                             {"read_batch", (PyCFunction)(void (*)(void))read_batch, METH_FASTCALL, NULL},
                             {"give_batch", (PyCFunction)(void (*)(void))give_batch, METH_FASTCALL, NULL},
                             {NULL, NULL, 0, NULL}};
