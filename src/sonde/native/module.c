/* The one extension: each part is a module of its own, `sonde.native.<part>`, described by `native/<part>.pyi`. */
#include "shared/abi.h"

#define PARTS(PART) \
    PART(checksum) PART(core) PART(fingerprints) PART(finite) PART(layers) PART(loader) PART(moments) PART(points) PART(sigterm) PART(slots) PART(stats) PART(traceable)

#define DECLARE(PART) int fill_##PART(PyObject *module);
#define ENTRY(PART) {#PART, "sonde.native." #PART, fill_##PART},
PARTS(DECLARE)

static const struct {
    const char *name, *path;
    int (*fill)(PyObject *module);
} parts[] = {PARTS(ENTRY)};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_sonde", "Sonde's C extension.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sonde(void)
{
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < sizeof parts / sizeof *parts; i++) {
        PyObject *part = PyModule_New(parts[i].path);
        if (!part || parts[i].fill(part) != 0 || PyModule_AddObjectRef(module, parts[i].name, part) != 0)
            Py_CLEAR(module);
        Py_XDECREF(part);
    }
    return module;
}
