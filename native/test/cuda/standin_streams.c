/* Streams and events of the stand-in CUDA driver: each stream is a thread that takes its operations in order.
 */
#define _GNU_SOURCE
#include "standin_cuda.h"

enum { QUEUE = 65536 };

struct operation {
  int kind; /* 0: copy, 1: event, 2: host function */
  Pointer to, from;
  size_t bytes, rows, to_stride, from_stride;
  struct event* event;
  uint64_t generation;
  void (*function)(void*);
  void* data;
};
struct stream {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct operation* queue;
  uint64_t head, tail, done;
  int stop;
};
struct event {
  uint64_t recorded, reached;
  Result error;
};

static void perform(const struct operation* o) {
  if (o->kind == 0) {
    char* to = standin_resolve(o->to);
    const char* from = standin_resolve(o->from);
    for (size_t r = 0; r < o->rows; r++) memcpy(to + r * o->to_stride, from + r * o->from_stride, o->bytes);
  } else if (o->kind == 1) {
    __atomic_store_n(&o->event->reached, o->generation, __ATOMIC_RELEASE);
  } else {
    o->function(o->data);
  }
}
static void* run(void* argument) {
  struct stream* s = argument;
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    while (s->head == s->tail && !s->stop) pthread_cond_wait(&s->changed, &s->mutex);
    if (s->head == s->tail) break;
    const struct operation o = s->queue[s->head % QUEUE];
    pthread_mutex_unlock(&s->mutex);
    const uint32_t delay = __atomic_load_n(&standin_delay, __ATOMIC_RELAXED);
    if (delay != 0 && o.kind == 1) usleep(delay);
    perform(&o);
    pthread_mutex_lock(&s->mutex);
    s->head++;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}
static Result queue(struct stream* s, struct operation o) {
  pthread_mutex_lock(&s->mutex);
  while (s->tail - s->head == QUEUE) pthread_cond_wait(&s->changed, &s->mutex);
  s->queue[s->tail++ % QUEUE] = o;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  return SUCCESS;
}
Result cuStreamCreate(struct stream** out, unsigned flags) {
  ENTER_CONTEXT("cuStreamCreate");
  if (flags != 1) return INVALID_VALUE; /* CU_STREAM_NON_BLOCKING: this package asks for nothing else */
  struct stream* s = calloc(1, sizeof *s);
  s->queue = calloc(QUEUE, sizeof *s->queue);
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
  if (pthread_create(&s->thread, NULL, run, s) != 0) return OUT_OF_MEMORY;
  *out = s;
  return SUCCESS;
}
Result cuStreamDestroy_v2(struct stream* s) {
  ENTER_CONTEXT("cuStreamDestroy_v2");
  pthread_mutex_lock(&s->mutex);
  s->stop = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  pthread_join(s->thread, NULL);
  free(s->queue);
  free(s);
  return SUCCESS;
}
Result cuStreamSynchronize(struct stream* s) {
  ENTER_CONTEXT("cuStreamSynchronize");
  pthread_mutex_lock(&s->mutex);
  while (s->head != s->tail) pthread_cond_wait(&s->changed, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
  return SUCCESS;
}
Result cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, struct stream* s) {
  ENTER_CONTEXT("cuMemcpyAsync");
  return queue(s, (struct operation){0, to, from, bytes, 1, 0, 0, NULL, 0, NULL, NULL});
}
struct copy2d {
  size_t source_x, source_y;
  unsigned source_type;
  const void* source_host;
  Pointer source;
  void* source_array;
  size_t source_pitch, to_x, to_y;
  unsigned to_type;
  void* to_host;
  Pointer to;
  void* to_array;
  size_t to_pitch, width, height;
};
Result cuMemcpy2DAsync_v2(const struct copy2d* c, struct stream* s) {
  ENTER_CONTEXT("cuMemcpy2DAsync_v2");
  if (c->source_type != 4 || c->to_type != 4 || c->width > c->source_pitch || c->width > c->to_pitch)
    return INVALID_VALUE;
  return queue(s, (struct operation){0, c->to, c->source, c->width, c->height, c->to_pitch, c->source_pitch,
                                     NULL, 0, NULL, NULL});
}
Result cuEventCreate(struct event** out, unsigned flags) {
  (void)flags;
  ENTER_CONTEXT("cuEventCreate");
  *out = calloc(1, sizeof **out);
  return SUCCESS;
}
Result cuEventDestroy_v2(struct event* e) {
  ENTER_CONTEXT("cuEventDestroy_v2");
  free(e);
  return SUCCESS;
}
Result cuEventRecord(struct event* e, struct stream* s) {
  ENTER_CONTEXT("cuEventRecord");
  return queue(s, (struct operation){1, 0, 0, 0, 0, 0, 0, e, ++e->recorded, NULL, NULL});
}
Result cuEventQuery(struct event* e) {
  ENTER_CONTEXT("cuEventQuery");
  return __atomic_load_n(&e->reached, __ATOMIC_ACQUIRE) == e->recorded ? SUCCESS : NOT_READY;
}
Result cuLaunchHostFunc(struct stream* s, void (*function)(void*), void* data) {
  ENTER_CONTEXT("cuLaunchHostFunc");
  return queue(s, (struct operation){2, 0, 0, 0, 0, 0, 0, NULL, 0, function, data});
}
