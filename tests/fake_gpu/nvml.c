// A management library that describes the GPUs of the fake driver. It appends a line to the file of
// `FAKE_NVML_STARTS` whenever it is started. `FAKE_NVML_PEERS` is what it answers for each pair of GPUs, as a
// number of `nvmlGpuP2PStatus_t`.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPUS = 8 };

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char text[32];
} PciInfo;

static uintptr_t number_of(const void* device) { return (uintptr_t)device - 1; }

int nvmlInit_v2(void) {
    const char* name = getenv("FAKE_NVML_STARTS");
    FILE* file = name ? fopen(name, "a") : NULL;
    if (file) {
        fputs("started\n", file);
        fclose(file);
    }
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = GPUS;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    *device = (void*)(uintptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(const void* device, PciInfo* info) {
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)number_of(device) + 1;
    snprintf(info->text, sizeof info->text, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(const void* a, const void* b, unsigned which, unsigned* status) {
    (void)a, (void)b, (void)which;
    const char* answer = getenv("FAKE_NVML_PEERS");
    if (!answer) return NOT_SUPPORTED;
    *status = (unsigned)atoi(answer);
    return SUCCESS;
}
