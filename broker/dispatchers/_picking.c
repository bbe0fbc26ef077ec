/* Which consumer gets which entries of a slab, compiled. `picking.py` describes the result of `pick` and has the reference in
 * Python (tests/broker/dispatchers/test_picking.py compares both). All state is in the Python objects of a `Hand`. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct { int64_t *at; size_t count, room; } numbers;
typedef struct { PyObject *consumer; int64_t left; numbers picks, hashes; } slot;

typedef struct {
    PyObject *owners, *owner_of, *room_of, *waiting_of_hash, *first_of_hash, *earlier, *left, *refused; /* of the hand */
    int in_order;
    PyObject *slot_of; /* consumer -> index of its slot */
    slot *slots;
    Py_ssize_t count, room, last;
    numbers order; /* of the slots, by their first pick */
    PyObject *waiting, *waiting_hashes;
} hand;

static int push(numbers *n, int64_t value) {
    if (n->count == n->room) {
        size_t room = n->room ? 2 * n->room : 32;
        int64_t *at = PyMem_Realloc(n->at, room * 8);
        if (!at) {
            PyErr_NoMemory();
            return -1;
        }
        n->at = at;
        n->room = room;
    }
    n->at[n->count++] = value;
    return 0;
}

static int append_long(PyObject *list, int64_t value) {
    PyObject *number = PyLong_FromLongLong(value);
    if (!number)
        return -1;
    int failed = PyList_Append(list, number);
    Py_DECREF(number);
    return failed;
}

/* (key hash, consumer or None) of a Murmur hash, a new reference. */
static PyObject *owner(hand *h, int64_t murmur) {
    PyObject *key = PyLong_FromLongLong(murmur);
    if (!key)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(h->owners, key));
    if (!found && !PyErr_Occurred())
        found = PyObject_CallOneArg(h->owner_of, key);
    Py_DECREF(key);
    if (found && (!PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2 || !PyLong_Check(PyTuple_GET_ITEM(found, 0)))) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_TypeError, "an owner is a hash and a consumer");
        return NULL;
    }
    return found;
}

static PyObject *attribute(PyObject *of, const char *name, PyTypeObject *type) {
    PyObject *value = PyObject_GetAttrString(of, name);
    if (value && type && !Py_IS_TYPE(value, type)) {
        PyErr_Format(PyExc_TypeError, "%s of a hand is a %s", name, type->tp_name);
        Py_CLEAR(value);
    }
    return value;
}

/* The slot of a consumer, made when it is the first entry for it; NULL when Python raised. */
static slot *slot_of(hand *h, PyObject *consumer) {
    if (h->last < h->count && h->slots[h->last].consumer == consumer)
        return &h->slots[h->last];
    PyObject *known = PyDict_GetItemWithError(h->slot_of, consumer);
    if (known) {
        h->last = PyLong_AsSsize_t(known);
        return &h->slots[h->last];
    }
    if (PyErr_Occurred())
        return NULL;
    PyObject *left = Py_XNewRef(PyDict_GetItemWithError(h->left, consumer));
    if (!left && !PyErr_Occurred())
        left = PyObject_CallOneArg(h->room_of, consumer);
    if (!left)
        return NULL;
    int64_t entries = PyLong_AsLongLong(left);
    Py_DECREF(left);
    if (entries == -1 && PyErr_Occurred())
        return NULL;
    if (h->count == h->room) {
        Py_ssize_t room = h->room ? 2 * h->room : 8;
        slot *slots = PyMem_Realloc(h->slots, (size_t)room * sizeof *slots);
        if (!slots) {
            PyErr_NoMemory();
            return NULL;
        }
        h->slots = slots;
        h->room = room;
    }
    PyObject *index = PyLong_FromSsize_t(h->count);
    if (!index || PyDict_SetItem(h->slot_of, consumer, index)) {
        Py_XDECREF(index);
        return NULL;
    }
    Py_DECREF(index);
    h->last = h->count++;
    slot *made = &h->slots[h->last];
    *made = (slot){.consumer = Py_NewRef(consumer), .left = entries};
    return made;
}

/* Whether an entry of this hash waits before (ledger, entry); -1 when Python raised. */
static int waits_before(hand *h, PyObject *key_hash, int64_t ledger, int64_t entry) {
    int any = PyDict_GET_SIZE(h->waiting_of_hash) ? PyDict_Contains(h->waiting_of_hash, key_hash) : 0;
    if (any <= 0)
        return any;
    PyObject *first = Py_XNewRef(PyDict_GetItemWithError(h->earlier, key_hash));
    if (!first) {
        if (PyErr_Occurred() || !(first = PyObject_CallOneArg(h->first_of_hash, key_hash)))
            return -1;
        if (PyDict_SetItem(h->earlier, key_hash, first)) {
            Py_DECREF(first);
            return -1;
        }
    }
    int waits = 0;
    if (first != Py_None) {
        long long at_ledger, at_entry;
        if (!PyArg_ParseTuple(first, "LL", &at_ledger, &at_entry))
            waits = -1;
        else
            waits = at_ledger < ledger || (at_ledger == ledger && at_entry <= entry);
    }
    Py_DECREF(first);
    return waits;
}

/* 1 when the entry is given to its owner, 0 when the entry has to wait, -1 when Python raised. */
static int give(hand *h, PyObject *key_hash, PyObject *consumer, int64_t k, int64_t ledger, int64_t entry) {
    if (consumer == Py_None)
        return 0;
    int refused = PySet_GET_SIZE(h->refused) ? PySet_Contains(h->refused, key_hash) : 0;
    if (refused)
        return refused < 0 ? -1 : 0;
    if (!slot_of(h, consumer))
        return -1;
    Py_ssize_t index = h->last;
    int waits = waits_before(h, key_hash, ledger, entry);
    slot *s = &h->slots[index];
    if (waits || s->left <= 0)
        return waits < 0 ? -1 : 0;
    int64_t value = PyLong_AsLongLong(key_hash);
    if ((value == -1 && PyErr_Occurred()) || push(&s->picks, k) || push(&s->hashes, value) ||
        (s->picks.count == 1 && push(&h->order, index)))
        return -1;
    s->left--;
    return 1;
}

static int pick_one(hand *h, int64_t murmur, int64_t k, int64_t ledger, int64_t first) {
    PyObject *found = owner(h, murmur);
    if (!found)
        return -1;
    PyObject *key_hash = PyTuple_GET_ITEM(found, 0);
    int given = give(h, key_hash, PyTuple_GET_ITEM(found, 1), k, ledger, first + k), failed = given < 0;
    if (!given)
        failed = append_long(h->waiting, first + k) || PyList_Append(h->waiting_hashes, key_hash) ||
                 (h->in_order && PySet_Add(h->refused, key_hash));
    Py_DECREF(found);
    return failed ? -1 : 0;
}

/* Notes how many messages each consumer can still take. */
static int note_left(hand *h) {
    for (Py_ssize_t i = 0; i < h->count; i++) {
        PyObject *left = PyLong_FromLongLong(h->slots[i].left);
        int failed = !left || PyDict_SetItem(h->left, h->slots[i].consumer, left);
        Py_XDECREF(left);
        if (failed)
            return -1;
    }
    return 0;
}

/* The picked entries of each consumer, consumers in the order of their first entry. */
static PyObject *of_consumers(hand *h) {
    PyObject *picked = PyDict_New();
    for (size_t i = 0; picked && i < h->order.count; i++) {
        slot *s = &h->slots[h->order.at[i]];
        Py_ssize_t size = (Py_ssize_t)s->picks.count * 8;
        PyObject *both = Py_BuildValue("(y#y#)", (const char *)s->picks.at, size, (const char *)s->hashes.at, size);
        if (!both || PyDict_SetItem(picked, s->consumer, both))
            Py_CLEAR(picked);
        Py_XDECREF(both);
    }
    return picked;
}

static int open_hand(hand *h, PyObject *of) {
    memset(h, 0, sizeof *h);
    PyObject *in_order = NULL;
    if (!(h->owners = attribute(of, "owners", &PyDict_Type)) || !(h->left = attribute(of, "left", &PyDict_Type)) ||
        !(h->refused = attribute(of, "refused", &PySet_Type)) || !(h->earlier = attribute(of, "earlier", &PyDict_Type)) ||
        !(h->waiting_of_hash = attribute(of, "waiting", &PyDict_Type)) ||
        !(h->owner_of = attribute(of, "owner_of", NULL)) || !(h->room_of = attribute(of, "room_of", NULL)) ||
        !(h->first_of_hash = attribute(of, "first_of_hash", NULL)) || !(in_order = attribute(of, "in_order", NULL)))
        return -1;
    h->in_order = PyObject_IsTrue(in_order);
    Py_DECREF(in_order);
    h->slot_of = PyDict_New();
    h->waiting = PyList_New(0);
    h->waiting_hashes = PyList_New(0);
    return h->in_order < 0 || !h->slot_of || !h->waiting || !h->waiting_hashes ? -1 : 0;
}

static void close_hand(hand *h) {
    for (Py_ssize_t i = 0; i < h->count; i++) {
        Py_DECREF(h->slots[i].consumer);
        PyMem_Free(h->slots[i].picks.at);
        PyMem_Free(h->slots[i].hashes.at);
    }
    PyMem_Free(h->slots);
    PyMem_Free(h->order.at);
    Py_XDECREF(h->owners);
    Py_XDECREF(h->owner_of);
    Py_XDECREF(h->room_of);
    Py_XDECREF(h->waiting_of_hash);
    Py_XDECREF(h->first_of_hash);
    Py_XDECREF(h->earlier);
    Py_XDECREF(h->left);
    Py_XDECREF(h->refused);
    Py_XDECREF(h->slot_of);
    Py_XDECREF(h->waiting);
    Py_XDECREF(h->waiting_hashes);
}

static PyObject *pick(PyObject *self, PyObject *args) {
    Py_buffer murmurs;
    PyObject *parts, *of, *picked, *result = NULL;
    long long ledger, first;
    hand h;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*O!LLO", &murmurs, &PyList_Type, &parts, &ledger, &first, &of))
        return NULL;
    if (open_hand(&h, of))
        goto out;
    for (Py_ssize_t n = 0; n < PyList_GET_SIZE(parts); n++) {
        Py_ssize_t i, j;
        PyObject *part = Py_NewRef(PyList_GET_ITEM(parts, n));
        int fits = PyArg_ParseTuple(part, "nn", &i, &j);
        Py_DECREF(part);
        if (!fits)
            goto out;
        if (i < 0 || j < i || j > murmurs.len / 8) {
            PyErr_SetString(PyExc_ValueError, "no such entries");
            goto out;
        }
        for (Py_ssize_t k = i; k < j; k++) {
            int64_t murmur;
            memcpy(&murmur, (const uint8_t *)murmurs.buf + 8 * k, 8);
            if (pick_one(&h, murmur, k, ledger, first))
                goto out;
        }
    }
    if (!note_left(&h) && (picked = of_consumers(&h)))
        result = Py_BuildValue("(NOO)", picked, h.waiting, h.waiting_hashes);
out:
    close_hand(&h);
    PyBuffer_Release(&murmurs);
    return result;
}

static PyMethodDef methods[] = {{"pick", pick, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_picking", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__picking(void) { return PyModule_Create(&module); }
