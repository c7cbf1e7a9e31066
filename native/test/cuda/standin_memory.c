/*
 * A stand-in for the CUDA driver, for tests on machines without one: it is no GPU, and its devices' names say
 * so. Memory of a device is memory of the host under an address that the CPU may not touch (a second mapping
 * of the same pages is what copies use), so that whoever dereferences it is ended by SIGSEGV. Streams are
 * threads. Calls are counted by name; any call can be made to fail. Tests steer it by the functions named
 * standin_*.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "standin_cuda.h"

enum {
  MAX_DEVICES = 4,
  MAX_ALLOCATIONS = 256,
  MAX_CALLS = 64,
  MAX_ATTRIBUTES = 256,
  MAX_HOST = 64,
  MAX_DEPTH = 8
};

struct allocation {
  char* address; /* PROT_NONE */
  char* alias;   /* the same pages, readable and writable */
  size_t bytes, mapped;
  int device, memfd, sync_memops;
};
struct call {
  char name[48];
  uint64_t count;
  uint64_t fail_in; /* the nth from now, 0: none */
  Result result;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation allocations[MAX_ALLOCATIONS];
static struct call calls[MAX_CALLS];
static int attributes[MAX_DEVICES][MAX_ATTRIBUTES];
static int devices = 2;
static int contexts[MAX_DEVICES]; /* a context is the address of its place here */
static struct {
  char* base;
  size_t bytes;
} host[MAX_HOST];
static uint64_t pageable_copies;
uint32_t standin_delay;
static _Thread_local int* stack[MAX_DEPTH];
_Thread_local int standin_depth;

Result standin_enter(const char* name) {
  Result result = SUCCESS;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_CALLS; i++) {
    struct call* call = &calls[i];
    if (call->name[0] == 0) snprintf(call->name, sizeof call->name, "%s", name);
    if (strcmp(call->name, name) != 0) continue;
    call->count++;
    if (call->fail_in != 0 && --call->fail_in == 0) result = call->result;
    break;
  }
  pthread_mutex_unlock(&lock);
  return result;
}
static struct allocation* find(Pointer pointer) {
  for (int i = 0; i < MAX_ALLOCATIONS; i++) {
    struct allocation* a = &allocations[i];
    if (a->address != NULL && pointer >= (uintptr_t)a->address && pointer < (uintptr_t)a->address + a->bytes)
      return a;
  }
  return NULL;
}

/* Tests' side. */
void standin_reset(void) {
  pthread_mutex_lock(&lock);
  memset(calls, 0, sizeof calls);
  for (int d = 0; d < MAX_DEVICES; d++) {
    memset(attributes[d], 0, sizeof attributes[d]);
    attributes[d][116] = attributes[d][124] = 1; /* GPUDirect RDMA, dma-buf */
    attributes[d][117] = 3;                      /* flush by host and by memory operations */
  }
  devices = 2;
  pageable_copies = 0;
  standin_delay = 0;
  pthread_mutex_unlock(&lock);
}
__attribute__((constructor)) static void loaded(void) {
  standin_reset();
  const char* count = getenv("STANDIN_CUDA_DEVICES");
  if (count != NULL) devices = atoi(count);
  const char* delay = getenv("STANDIN_CUDA_DELAY_US");
  if (delay != NULL) standin_delay = (uint32_t)atoi(delay);
}
void standin_set_devices(int count) { devices = count; }
void standin_set_attribute(int device, int attribute, int value) { attributes[device][attribute] = value; }
void standin_set_delay_us(uint32_t us) { __atomic_store_n(&standin_delay, us, __ATOMIC_RELAXED); }
void standin_fail(const char* name, uint64_t nth, Result result) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_CALLS; i++) {
    if (calls[i].name[0] == 0) snprintf(calls[i].name, sizeof calls[i].name, "%s", name);
    if (strcmp(calls[i].name, name) != 0) continue;
    calls[i].fail_in = nth;
    calls[i].result = result;
    break;
  }
  pthread_mutex_unlock(&lock);
}
uint64_t standin_calls(const char* name) {
  uint64_t count = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_CALLS; i++) {
    if (strcmp(calls[i].name, name) == 0) count = calls[i].count;
  }
  pthread_mutex_unlock(&lock);
  return count;
}
uint64_t standin_pageable_copies(void) { return __atomic_load_n(&pageable_copies, __ATOMIC_RELAXED); }
/* Where the CPU finds what lies at an address of a device; NULL when it is none. */
void* standin_alias(void* pointer, size_t bytes) {
  pthread_mutex_lock(&lock);
  struct allocation* a = find((uintptr_t)pointer);
  char* at = NULL;
  if (a != NULL && (char*)pointer - a->address + bytes <= a->mapped)
    at = a->alias + ((char*)pointer - a->address);
  pthread_mutex_unlock(&lock);
  return at;
}
int standin_live_allocations(void) {
  int live = 0;
  for (int i = 0; i < MAX_ALLOCATIONS; i++) live += allocations[i].address != NULL;
  return live;
}

/* The driver's side. */
Result cuInit(unsigned flags) {
  (void)flags;
  ENTER("cuInit");
  return SUCCESS;
}
Result cuDriverGetVersion(int* version) {
  ENTER("cuDriverGetVersion");
  *version = 12040;
  return SUCCESS;
}
Result cuGetErrorName(Result result, const char** name) {
  *name = result == OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == NOT_SUPPORTED  ? "CUDA_ERROR_NOT_SUPPORTED"
          : result == INVALID_VALUE  ? "CUDA_ERROR_INVALID_VALUE"
          : result == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE"
                                     : NULL;
  return *name == NULL ? INVALID_VALUE : SUCCESS;
}
Result cuGetErrorString(Result result, const char** text) {
  (void)result;
  *text = "says the stand-in";
  return SUCCESS;
}
Result cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = devices;
  return SUCCESS;
}
Result cuDeviceGet(int* device, int ordinal) {
  ENTER("cuDeviceGet");
  *device = ordinal;
  return ordinal >= 0 && ordinal < devices ? SUCCESS : INVALID_DEVICE;
}
Result cuDeviceGetName(char* name, int bytes, int device) {
  snprintf(name, (size_t)bytes, "stand-in CUDA device %d (no GPU)", device);
  return SUCCESS;
}
Result cuDeviceGetPCIBusId(char* id, int bytes, int device) {
  snprintf(id, (size_t)bytes, "0000:%02x:00.0", 0x3b + device);
  return SUCCESS;
}
Result cuDeviceGetByPCIBusId(int* device, const char* id) {
  for (int d = 0; d < devices; d++) {
    char own[32];
    cuDeviceGetPCIBusId(own, sizeof own, d);
    if (strcmp(own, id) == 0) return *device = d, SUCCESS;
  }
  return INVALID_DEVICE;
}
Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute >= 0 && attribute < MAX_ATTRIBUTES ? attributes[device][attribute] : 0;
  return SUCCESS;
}
Result cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  *context = &contexts[device];
  return SUCCESS;
}
Result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  ENTER("cuDevicePrimaryCtxRelease_v2");
  return SUCCESS;
}
Result cuCtxPushCurrent_v2(void* context) {
  ENTER("cuCtxPushCurrent_v2");
  if (standin_depth == MAX_DEPTH) return INVALID_VALUE;
  stack[standin_depth++] = context;
  return SUCCESS;
}
Result cuCtxPopCurrent_v2(void** context) {
  ENTER("cuCtxPopCurrent_v2");
  if (standin_depth == 0) return INVALID_CONTEXT;
  *context = stack[--standin_depth];
  return SUCCESS;
}
Result cuMemAlloc_v2(Pointer* pointer, size_t bytes) {
  ENTER_CONTEXT("cuMemAlloc_v2");
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t mapped = (bytes + page - 1) / page * page;
  const int memfd = memfd_create("stand-in CUDA memory", MFD_CLOEXEC);
  if (memfd < 0 || ftruncate(memfd, (off_t)mapped) != 0) return OUT_OF_MEMORY;
  char* address = mmap(NULL, mapped, PROT_NONE, MAP_SHARED, memfd, 0);
  char* alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  Result result = OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_ALLOCATIONS && result != SUCCESS; i++) {
    if (allocations[i].address != NULL) continue;
    allocations[i] = (struct allocation){
        address, alias, bytes, mapped, (int)(stack[standin_depth - 1] - contexts), memfd, 0};
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  *pointer = (uintptr_t)address;
  return result;
}
Result cuMemFree_v2(Pointer pointer) {
  ENTER_CONTEXT("cuMemFree_v2");
  pthread_mutex_lock(&lock);
  struct allocation* a = find(pointer);
  if (a != NULL && (uintptr_t)a->address == pointer) {
    munmap(a->address, a->mapped);
    munmap(a->alias, a->mapped);
    close(a->memfd);
    a->address = NULL;
  } else {
    a = NULL;
  }
  pthread_mutex_unlock(&lock);
  return a == NULL ? INVALID_VALUE : SUCCESS;
}
Result cuPointerGetAttribute(void* value, int attribute, Pointer pointer) {
  ENTER("cuPointerGetAttribute");
  pthread_mutex_lock(&lock);
  struct allocation* a = find(pointer);
  Result result = SUCCESS;
  if (a == NULL) {
    result = INVALID_VALUE;
    for (int i = 0; i < MAX_HOST; i++) {
      const uintptr_t base = (uintptr_t)host[i].base;
      if (attribute != 2 || base == 0 || pointer < base || pointer >= base + host[i].bytes) continue;
      *(unsigned*)value = 1; /* CU_MEMORYTYPE_HOST */
      result = SUCCESS;
    }
  } else if (attribute == 2) {
    *(unsigned*)value = 2; /* CU_MEMORYTYPE_DEVICE */
  } else if (attribute == 6) {
    *(int*)value = a->sync_memops;
  } else if (attribute == 9) {
    *(int*)value = a->device;
  } else if (attribute == 11) {
    *(Pointer*)value = (uintptr_t)a->address;
  } else if (attribute == 12) {
    *(size_t*)value = a->bytes;
  } else {
    result = INVALID_VALUE;
  }
  pthread_mutex_unlock(&lock);
  return result;
}
Result cuPointerSetAttribute(const void* value, int attribute, Pointer pointer) {
  ENTER_CONTEXT("cuPointerSetAttribute");
  pthread_mutex_lock(&lock);
  struct allocation* a = find(pointer);
  if (a != NULL && attribute == 6) a->sync_memops = *(const int*)value;
  pthread_mutex_unlock(&lock);
  return a != NULL && attribute == 6 ? SUCCESS : INVALID_VALUE;
}
Result cuMemHostRegister_v2(void* base, size_t bytes, unsigned flags) {
  (void)flags;
  ENTER_CONTEXT("cuMemHostRegister_v2");
  Result result = OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_HOST; i++) {
    if (host[i].base == base) result = ALREADY_REGISTERED;
  }
  for (int i = 0; i < MAX_HOST && result == OUT_OF_MEMORY; i++) {
    if (host[i].base != NULL) continue;
    host[i].base = base;
    host[i].bytes = bytes;
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}
Result cuMemHostUnregister(void* base) {
  ENTER_CONTEXT("cuMemHostUnregister");
  Result result = INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_HOST; i++) {
    if (host[i].base != base) continue;
    host[i].base = NULL;
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

char* standin_resolve(Pointer pointer) {
  pthread_mutex_lock(&lock);
  struct allocation* a = find(pointer);
  char* at = (char*)(uintptr_t)pointer;
  int registered = a != NULL;
  if (a != NULL) at = a->alias + (pointer - (uintptr_t)a->address);
  for (int i = 0; i < MAX_HOST && !registered; i++)
    registered = host[i].base != NULL && at >= host[i].base && at < host[i].base + host[i].bytes;
  pthread_mutex_unlock(&lock);
  if (!registered) __atomic_fetch_add(&pageable_copies, 1, __ATOMIC_RELAXED);
  return at;
}

/* A file of its own for [begin, begin + bytes), whose first byte is that of `begin`, as a dma-buf's is. */
Result cuMemGetHandleForAddressRange(int* handle, Pointer begin, size_t bytes, int type,
                                     unsigned long long flags) {
  (void)flags;
  ENTER_CONTEXT("cuMemGetHandleForAddressRange");
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (type != 1 || begin % page != 0 || bytes % page != 0) return INVALID_VALUE;
  Result result = INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct allocation* a = find(begin);
  const size_t offset = a == NULL ? 0 : begin - (uintptr_t)a->address;
  if (a != NULL && offset + bytes <= a->mapped) {
    const int memfd = memfd_create("stand-in dma-buf", MFD_CLOEXEC);
    if (memfd >= 0 && ftruncate(memfd, (off_t)bytes) == 0 &&
        write(memfd, a->alias + offset, bytes) == (ssize_t)bytes &&
        mmap(a->alias + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0) !=
            MAP_FAILED &&
        mmap(a->address + offset, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memfd, 0) != MAP_FAILED) {
      *handle = memfd;
      result = SUCCESS;
    }
  }
  pthread_mutex_unlock(&lock);
  return result;
}
Result cuFlushGPUDirectRDMAWrites(int target, int scope) {
  ENTER_CONTEXT("cuFlushGPUDirectRDMAWrites");
  return target == 0 && scope == 100 ? SUCCESS : INVALID_VALUE;
}
