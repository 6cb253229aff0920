/* Python's side of the kernels: arguments to words, the call without the GIL, results back.
 *
 * Stable ABI from Python 3.11 on. table.h is written by the build: the forms of all kernels, those of one name in a row,
 * with their layouts (see forms.py). */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 512

typedef struct {
    const char *name;       /* module.function */
    const char *parameters; /* their names, each behind a space */
    const char *arguments;  /* layout */
    const char *results;    /* layout */
    int32_t (*functions[LEVELS])(int64_t *);
} form;
#include "table.h"

#ifdef __x86_64__
#include <cpuid.h>
/* What a level needs: bits of cpuid 1 (ecx) and 7 (ebx), and the registers that the operating system keeps. */
static const struct {
    const char *level;
    unsigned first, seventh, kept;
} needs[] = {{"x86-64-v4", 0x38d83201, 0xd0030128, 0xe6}, {"x86-64-v3", 0x38d83201, 0x128, 6}, {"x86-64-v2", 0x982201, 0, 0}};

static int runs_here(const char *level) {
    unsigned a, b, first = 0, d, c, seventh = 0, kept = 0;
    __get_cpuid(1, &a, &b, &first, &d);
    __get_cpuid_count(7, 0, &a, &seventh, &c, &d);
    if (first >> 27 & 1) __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (!strcmp(level, needs[i].level))
            return !(needs[i].first & ~first) && !(needs[i].seventh & ~seventh) && !(needs[i].kept & ~kept);
    return 0;
}
#else
static int runs_here(const char *level) { return !strcmp(level, "generic"); }
#endif

/* numpy's array object and the numbers of its types: part of its binary interface. */
typedef struct {
    PyObject_HEAD PyTypeObject *type;
    char kind, letter, byteorder, flags;
    int number;
} description;
typedef struct {
    PyObject_HEAD char *data;
    int dimensions;
    Py_ssize_t *shape, *strides;
    PyObject *base;
    description *dtype;
    int flags;
} array;
#include "rows.c"
enum { CONTIGUOUS = 1, ALIGNED = 0x100, WRITEABLE = 0x400 };
static const char letters[] = "tbchijklmfd";
static const char *const dtypes[] = {"bool",   "int8",  "uint8",  "int16",   "uint16", "int32",
                                     "uint32", "int64", "uint64", "float32", "float64"};
static const int numbers[] = {0, 1, 2, 3, 4, 5, 6, sizeof(long) == 8 ? 7 : 9, sizeof(long) == 8 ? 8 : 10, 11, 12};

static PyTypeObject *array_type;
static void **numpy; /* its table of functions */
static int level;

static int index_of(char letter) { return (int)(strchr(letters, letter) - letters); }

static int has_dtype(const array *one, char letter) {
    int number = one->dtype->number, wanted = numbers[index_of(letter)];
    if (one->dtype->byteorder == '>') return 0;
    if (number == wanted) return 1;
    /* Two C types may have the same size: long and long long, or int and long. */
    if (sizeof(long) == 8) return (letter == 'l' && number == 9) || (letter == 'm' && number == 10);
    return (letter == 'j' && number == 7) || (letter == 'k' && number == 8);
}

/* Where an argument does not fit, and what was wanted there. */
typedef struct {
    char path[200];
    const char *layout;
} misfit;

static void put_in_front(misfit *fault, PyObject *tuple, Py_ssize_t place) {
    char text[64], rest[200];
    PyObject *fields = PyObject_GetAttrString((PyObject *)Py_TYPE(tuple), "_fields");
    PyObject *name = fields ? PySequence_GetItem(fields, place) : NULL, *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
    if (bytes) PyOS_snprintf(text, sizeof text, ".%s", PyBytes_AsString(bytes));
    else PyOS_snprintf(text, sizeof text, "[%d]", (int)place);
    PyErr_Clear();
    Py_XDECREF(fields);
    Py_XDECREF(name);
    Py_XDECREF(bytes);
    memcpy(rest, fault->path, sizeof rest);
    PyOS_snprintf(fault->path, sizeof fault->path, "%s%.130s", text, rest);
}

/* Writes the words of `value`. Gives the rest of the layout; NULL if the value does not fit. */
static const char *put(const char *layout, PyObject *value, int64_t **words, misfit *fault) {
    const char *begin = layout;
    char letter = *layout++;
    if (letter == '(') {
        Py_ssize_t size = PyTuple_Check(value) ? PyTuple_Size(value) : -1, place = 0;
        for (; *layout != ')' && place < size; place++) {
            layout = put(layout, PyTuple_GetItem(value, place), words, fault);
            if (!layout) {
                put_in_front(fault, value, place);
                return NULL;
            }
        }
        if (*layout == ')' && place == size) return layout + 1;
    } else if (letter >= 'a') {
        int dimensions = *layout++ - '0', is_strided = *layout == 's', is_readonly = layout[is_strided] == 'r';
        int needed = ALIGNED | (is_strided ? 0 : CONTIGUOUS) | (is_readonly ? 0 : WRITEABLE);
        array *one = (array *)value;
        layout += is_strided + is_readonly;
        if ((Py_TYPE(value) == array_type || PyObject_TypeCheck(value, array_type)) && one->dimensions == dimensions
            && (one->flags & needed) == needed && has_dtype(one, letter)) {
            *(*words)++ = (int64_t)(intptr_t)one->data;
            for (int i = 0; i < dimensions; i++) *(*words)++ = one->shape[i];
            for (int i = 0; is_strided && i < dimensions; i++) *(*words)++ = one->strides[i];
            return layout;
        }
    } else if (letter == 'D') {
        double number = PyFloat_AsDouble(value);
        memcpy((*words)++, &number, 8);
        if (!(number == -1.0 && PyErr_Occurred())) return layout;
    } else if (letter == 'T') {
        int truth = PyObject_IsTrue(value);
        *(*words)++ = truth;
        if (truth >= 0) return layout;
    } else {
        PyObject *number = PyNumber_Index(value);
        if (number) {
            *(*words)++ = letter == 'M' ? (int64_t)PyLong_AsUnsignedLongLong(number) : PyLong_AsLongLong(number);
            Py_DECREF(number);
            if (!PyErr_Occurred()) return layout;
        }
    }
    PyErr_Clear();
    fault->path[0] = 0;
    fault->layout = begin;
    return NULL;
}

static PyObject *misfit_error(const form *one, Py_ssize_t argument, const misfit *fault) {
    const char *name = one->parameters, *layout = fault->layout;
    for (; argument; argument--) name = strchr(name + 1, ' ');
    char parameter[64], wanted[120] = "a tuple of other fields";
    if (*layout >= 'a') {
        int is_strided = layout[2] == 's', is_readonly = layout[2 + is_strided] == 'r';
        PyOS_snprintf(wanted, sizeof wanted, "an array of %s with %c dimension%s%s%s", dtypes[index_of(*layout)], layout[1],
                      layout[1] == '1' ? "" : "s", is_strided ? "" : ", contiguous", is_readonly ? "" : ", writable");
    } else if (*layout != '(') {
        PyOS_snprintf(wanted, sizeof wanted, "a number of type %s", dtypes[index_of((char)(*layout + 'a' - 'A'))]);
    }
    PyOS_snprintf(parameter, sizeof parameter, "%.*s", (int)strcspn(name + 1, " "), name + 1);
    return PyErr_Format(PyExc_TypeError, "%s: %s%s must be %s", one->name, parameter, fault->path, wanted);
}

void NRT_MemInfo_call_dtor(void *);

static void release(PyObject *capsule) {
    size_t *block = PyCapsule_GetPointer(capsule, NULL);
    if (--*block == 0) NRT_MemInfo_call_dtor(block);
}

/* The result at a place of the layout, from words; moves both on. */
static PyObject *get(const char **layout, int64_t **words) {
    char letter = *(*layout)++;
    if (letter == '(') {
        PyObject *parts = PyList_New(0), *tuple;
        while (**layout != ')') {
            PyObject *part = get(layout, words);
            if (!part || PyList_Append(parts, part) < 0) return NULL;
            Py_DECREF(part);
        }
        ++*layout;
        tuple = PyList_AsTuple(parts);
        Py_DECREF(parts);
        return tuple;
    }
    if (letter >= 'a') {
        typedef PyObject *(*new_array)(PyTypeObject *, int, Py_ssize_t *, int, Py_ssize_t *, void *, int, int, PyObject *);
        typedef int (*set_base)(PyObject *, PyObject *);
        int dimensions = *(*layout)++ - '0';
        Py_ssize_t sizes[6];
        int64_t *word = *words;
        for (int i = 0; i < 2 * dimensions; i++) sizes[i] = (Py_ssize_t)word[2 + i];
        *words += 2 + 2 * dimensions;
        /* PyArray_New and PyArray_SetBaseObject: the array owns the kernel's memory block. */
        PyObject *made = ((new_array)numpy[93])(array_type, dimensions, sizes, numbers[index_of(letter)], sizes + dimensions,
                                                (void *)(intptr_t)word[1], 0, ALIGNED | WRITEABLE, NULL);
        PyObject *owner = made && word[0] ? PyCapsule_New((void *)(intptr_t)word[0], NULL, release) : NULL;
        if (owner) ((set_base)numpy[282])(made, owner);
        return made;
    }
    int64_t word = *(*words)++;
    double number;
    memcpy(&number, &word, 8);
    if (letter == 'D') return PyFloat_FromDouble(number);
    if (letter == 'T') return PyBool_FromLong(word & 1);
    return letter == 'M' ? PyLong_FromUnsignedLongLong((uint64_t)word) : PyLong_FromLongLong(word);
}

/* The exception that a kernel ended with: pickled are its class, its arguments and a place, which is None. */
static PyObject *raise_exception(const form *one, int32_t status, const int64_t *words) {
    if (status != 1) return PyErr_Format(PyExc_SystemError, "%s ended with status %d", one->name, status);
    PyObject *pickle = PyImport_ImportModule("pickle"), *record = NULL, *error = NULL;
    if (pickle) record = PyObject_CallMethod(pickle, "loads", "y#", (char *)(intptr_t)words[0], (Py_ssize_t)words[1]);
    if (record) error = PyObject_CallObject(PyTuple_GetItem(record, 0), PyTuple_GetItem(record, 1));
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(pickle);
    Py_XDECREF(record);
    Py_XDECREF(error);
    return NULL;
}

static PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    int64_t buffer[WORDS_MAX];
    const form *first = PyCapsule_GetPointer(self, NULL), *one = first;
    Py_ssize_t place = 0;
    misfit fault;
    for (; one->name && !strcmp(one->name, first->name); one++) {
        int64_t *words = buffer;
        const char *layout = one->arguments;
        for (place = 0; place < count && layout && *layout; place++) layout = put(layout, arguments[place], &words, &fault);
        if (!layout) continue;
        if (*layout || place < count) return PyErr_Format(PyExc_TypeError, "%s takes%s", one->name, one->parameters);
        int32_t (*function)(int64_t *) = one->functions[level];
        PyThreadState *state = PyEval_SaveThread();
        int32_t status = function(buffer);
        PyEval_RestoreThread(state);
        if (status) return raise_exception(one, status, buffer);
        layout = one->results;
        words = buffer;
        if (!*layout) Py_RETURN_NONE;
        return get(&layout, &words);
    }
    return misfit_error(one - 1, place - 1, &fault);
}

static PyMethodDef call_definition = {"kernel", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_library", NULL, -1, row_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__library(void) {
    PyObject *module = PyModule_Create(&definition), *entries = PyDict_New();
    PyObject *multiarray = PyImport_ImportModule("numpy._core._multiarray_umath");
    PyObject *functions = multiarray ? PyObject_GetAttrString(multiarray, "_ARRAY_API") : NULL;
    if (!module || !entries || !functions) return NULL;
    numpy = PyCapsule_GetPointer(functions, NULL);
    array_type = (PyTypeObject *)PyObject_GetAttrString(multiarray, "ndarray");
    const char *wanted = getenv("OUZEL_KERNELS_LEVEL");
    for (level = 0; level < LEVELS - 1 && !runs_here(levels[level]); level++) continue;
    if (!runs_here(levels[level])) return PyErr_Format(PyExc_ImportError, "the kernels need a processor with %s", levels[level]);
    for (int i = 0; wanted && i < LEVELS; i++)
        if (!strcmp(wanted, levels[i])) level = i;
    for (const form *one = forms; one->name; one++) {
        if (one != forms && !strcmp(one[-1].name, one->name)) continue;
        PyObject *capsule = PyCapsule_New((void *)one, NULL, NULL);
        PyObject *function = capsule ? PyCFunction_NewEx(&call_definition, capsule, NULL) : NULL;
        if (!function || PyDict_SetItemString(entries, one->name, function) < 0) return NULL;
        Py_DECREF(capsule);
        Py_DECREF(function);
    }
    PyModule_AddObject(module, "entries", entries);
    PyModule_AddStringConstant(module, "level", levels[level]);
    PyModule_AddStringConstant(module, "digest", DIGEST);
    return module;
}
