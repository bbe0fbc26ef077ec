/* libFuzzer around Python: each input goes to one function of targets.py, which gives it to a compiled helper. The helpers are
 * built for coverage, this file and Python are not: the fuzzer looks for inputs that reach new code of the helpers alone. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

static PyObject *target;

static void fail(void) {
    PyErr_Print();
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    PyConfig_SetBytesString(&config, &config.program_name, getenv("MAGNETAR_FUZZ_PYTHON"));
    if (PyStatus_Exception(Py_InitializeFromConfig(&config)))
        abort();
    PyConfig_Clear(&config);
    PyObject *module = PyImport_ImportModule("tests.fuzz.compiled.targets");
    target = module ? PyObject_CallMethod(module, "target", "s", getenv("MAGNETAR_FUZZ_TARGET")) : NULL;
    if (!target)
        fail();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    PyObject *result = PyObject_CallFunction(target, "y#", (const char *)data, (Py_ssize_t)size);
    if (!result)
        fail();
    Py_DECREF(result);
    return 0;
}
