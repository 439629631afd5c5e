#include "gpu.h"
#include <dlfcn.h>
#include <stddef.h>
#include "base/alloc.h"

/* As nvml.h declares them; 0 is success. */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_utilization {
    unsigned gpu, memory; /* per cent */
} nvml_utilization;
enum { NVML_TEMPERATURE_GPU = 0 };

struct dg_gpu {
    void *library; /* to close; NULL: it is somebody else's */
    void *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus)(const char *bus_id, void **device);
    int (*memory)(void *device, nvml_memory *out);
    int (*utilization)(void *device, nvml_utilization *out);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*power)(void *device, unsigned *milliwatts);
};

/* Only what finds the device has to be there. */
static bool find_all(dg_gpu *g, dg_gpu_find_fn *find, void *library)
{
    const struct {
        void *to;
        const char *name;
    } all[] = {
        {&g->init, "nvmlInit_v2"},
        {&g->shutdown, "nvmlShutdown"},
        {&g->by_bus, "nvmlDeviceGetHandleByPciBusId_v2"},
        {&g->memory, "nvmlDeviceGetMemoryInfo"},
        {&g->utilization, "nvmlDeviceGetUtilizationRates"},
        {&g->temperature, "nvmlDeviceGetTemperature"},
        {&g->power, "nvmlDeviceGetPowerUsage"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *(void **)all[i].to = find(library, all[i].name);
    return g->init && g->shutdown && g->by_bus;
}

dg_gpu *dg_gpu_open_with(dg_gpu_find_fn *find, void *library, const char *pci_bus_id)
{
    dg_gpu *g = dg_calloc(1, sizeof *g);
    if (!g || !find_all(g, find, library) || g->init()) {
        dg_free(g);
        return NULL;
    }
    if (g->by_bus(pci_bus_id, &g->device)) {
        dg_gpu_close(g);
        return NULL;
    }
    return g;
}

dg_gpu *dg_gpu_open(const char *pci_bus_id)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    dg_gpu *g = library ? dg_gpu_open_with(dlsym, library, pci_bus_id) : NULL;
    if (g)
        g->library = library;
    else if (library)
        dlclose(library);
    return g;
}

void dg_gpu_close(dg_gpu *g)
{
    if (!g)
        return;
    g->shutdown();
    if (g->library)
        dlclose(g->library);
    dg_free(g);
}

void dg_gpu_read(const dg_gpu *g, dg_gpu_state *state)
{
    nvml_memory memory;
    nvml_utilization utilization;
    unsigned n;
    *state = (dg_gpu_state){-1, -1, -1, -1, -1};
    if (!g)
        return;
    if (g->memory && !g->memory(g->device, &memory)) {
        state->used_bytes = (double)memory.used;
        state->total_bytes = (double)memory.total;
    }
    if (g->utilization && !g->utilization(g->device, &utilization))
        state->utilization = 1e-2 * utilization.gpu;
    if (g->temperature && !g->temperature(g->device, NVML_TEMPERATURE_GPU, &n))
        state->celsius = n;
    if (g->power && !g->power(g->device, &n))
        state->watts = 1e-3 * n;
}
