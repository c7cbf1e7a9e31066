/* What the two halves of the stand-in CUDA driver share: standin_memory.c says what it is. */
#ifndef STANDIN_CUDA_H
#define STANDIN_CUDA_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
typedef unsigned long long Pointer;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  NOT_READY = 600,
  ALREADY_REGISTERED = 712,
  NOT_SUPPORTED = 801
};

extern uint32_t standin_delay; /* microseconds before an event is reached */
extern _Thread_local int standin_depth;

/* Counts the call; what it has to fail with, or SUCCESS. */
Result standin_enter(const char* name);
/* Where a copy finds the bytes; counts memory of the host that is not registered. */
char* standin_resolve(Pointer pointer);

#define ENTER(name)                             \
  do {                                          \
    const Result failed_ = standin_enter(name); \
    if (failed_ != SUCCESS) return failed_;     \
  } while (0)
#define ENTER_CONTEXT(name)                         \
  do {                                              \
    ENTER(name);                                    \
    if (standin_depth == 0) return INVALID_CONTEXT; \
  } while (0)

#endif
