/* Another process's engine: gets a door, hands its own memory over, saves blocks, loads them again, and
 * checks every byte and record. What it needs of the host comes as arguments; it prints JSON and ends with 0
 * when all is right.
 *
 *   drive SOCKET BUFFER_GEOMETRY LAYERS BLOCK_TOKENS BLOCK_BYTES READ_DELAY_MS [linger]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dualpath_door.h"

#define BLOCKS 6u
#define PATIENCE_MS 20000
enum { COUNTER_COPIED = 10, COUNTER_READ = 11, COUNTER_GATE = 12 };

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

static struct dp_door door;
static uint32_t buffer_geometry, own_geometry, layers, block_tokens;
static uint64_t block_bytes;
static uint8_t* memory; /* BLOCKS blocks of this process's own */

static uint8_t pattern(uint32_t block, uint64_t offset) { return (uint8_t)(block * 31 + offset * 7 + 3); }

static void fill(void) {
  for (uint32_t b = 0; b < BLOCKS; b++) {
    for (uint64_t i = 0; i < block_bytes; i++) memory[b * block_bytes + i] = pattern(b, i);
  }
}

static uint64_t wrong_bytes(void) {
  uint64_t wrong = 0;
  for (uint32_t b = 0; b < BLOCKS; b++) {
    for (uint64_t i = 0; i < block_bytes; i++) wrong += memory[b * block_bytes + i] != pattern(b, i);
  }
  return wrong;
}

static uint64_t clock_us(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* The record of the program in flight; its steps are counted. */
static struct dp_record end_of(uint32_t program, uint32_t* steps) {
  struct dp_record record;
  for (;;) {
    CHECK(dp_door_wait(&door, &record, PATIENCE_MS) == 0);
    CHECK(record.program == program);
    if (record.kind == DP_RECORD_PROGRAM) return record;
    CHECK(record.kind == DP_RECORD_STEP);
    if (steps != NULL) ++*steps;
  }
}

/* Slots 0 .. BLOCKS - 1 of both sides; keys of our own. */
static void write_tables(void) {
  for (uint32_t b = 0; b < BLOCKS; b++) {
    door.slots[b] = b;                             /* of our memory */
    door.slots[BLOCKS + b] = (b * 5 + 1) % BLOCKS; /* of the buffer */
    memset(door.keys[b], 0x40 + (int)b, 32);
  }
}

static struct dp_descriptor copy(uint32_t program, uint32_t from, uint32_t to) {
  struct dp_descriptor d = dp_describe(DP_OP_COPY, program, program + 1);
  d.src_geometry = from;
  d.dst_geometry = to;
  d.src_list = from == own_geometry ? 0 : BLOCKS;
  d.dst_list = to == own_geometry ? 0 : BLOCKS;
  d.list_count = BLOCKS;
  d.token_end = BLOCKS * block_tokens;
  d.layer_count = (uint16_t)layers;
  return d;
}

static struct dp_descriptor move(enum dp_op op, uint32_t program) {
  struct dp_descriptor d = dp_describe(op, program, program + 1);
  d.list_count = BLOCKS;
  if (op == DP_OP_READ) {
    d.dst_geometry = buffer_geometry;
    d.dst_list = BLOCKS;
  } else {
    d.src_geometry = buffer_geometry;
    d.src_list = BLOCKS;
  }
  return d;
}

/* Our memory -> buffer, layer by layer, then the store. */
static struct dp_record save(uint32_t program, uint32_t* steps) {
  struct dp_descriptor both[2];
  both[0] = copy(program, own_geometry, buffer_geometry);
  both[0].flags = DP_FLAG_EVENT;
  both[0].signal[0].counter = COUNTER_COPIED;
  both[0].signal[0].mode = DP_SIGNAL_ORDERED;
  both[1] = move(DP_OP_WRITE, program);
  both[1].wait[0].counter = COUNTER_COPIED;
  both[1].wait[0].value = layers;
  CHECK(dp_door_submit(&door, both, 2) == 0);
  return end_of(program, steps);
}

/* The store -> buffer; its layers as soon as every block is there. */
static struct dp_record load(uint32_t program) {
  struct dp_descriptor both[2];
  const uint64_t before = dp_door_counter(&door, COUNTER_READ);
  both[0] = move(DP_OP_READ, program);
  both[0].signal[0].counter = COUNTER_READ;
  both[0].signal[0].value = 1;
  both[1] = copy(program, buffer_geometry, own_geometry);
  both[1].wait[0].counter = COUNTER_READ;
  both[1].wait[0].value = before + BLOCKS;
  CHECK(dp_door_submit(&door, both, 2) == 0);
  return end_of(program, NULL);
}

static void own_memory(void) {
  const uint64_t bytes = BLOCKS * block_bytes;
  const int fd = memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  uint32_t refused = DP_NONE;
  const int open_ended = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
  CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(dp_door_offer_memory(&door, fd, bytes, 77, &own_geometry) == 0);
  CHECK(own_geometry != buffer_geometry);
  close(fd);
  CHECK(open_ended >= 0 && ftruncate(open_ended, (off_t)bytes) == 0);
  CHECK(dp_door_offer_memory(&door, open_ended, bytes, 78, &refused) == -EINVAL);
  close(open_ended);
}

static void failures(void) {
  struct dp_descriptor d = copy(900, own_geometry, buffer_geometry);
  struct dp_record record;
  const uint32_t good = door.slots[BLOCKS + 2];
  door.slots[BLOCKS + 2] = 1000000; /* no such slot */
  CHECK(dp_door_submit(&door, &d, 1) == 0);
  record = end_of(900, NULL);
  CHECK(record.status == DP_ERROR_INVALID && record.error_index == 0 && record.error_block == 2);
  door.slots[BLOCKS + 2] = good;

  d = dp_describe(DP_OP_BUMP, 901, 0); /* waits for us */
  d.wait[0].counter = COUNTER_GATE;
  d.wait[0].value = 5;
  CHECK(dp_door_submit(&door, &d, 1) == 0);
  CHECK(dp_door_wait(&door, &record, 20) == -ETIMEDOUT);
  dp_door_bump(&door, COUNTER_GATE, 5);
  CHECK(end_of(901, NULL).status == DP_ERROR_NONE);

  d.program = 902;
  d.wait[0].value = 1000;
  CHECK(dp_door_submit(&door, &d, 1) == 0);
  CHECK(dp_door_cancel(&door, 902) == 0);
  CHECK(end_of(902, NULL).status == DP_ERROR_CANCELLED);

  memset(door.keys[1], 0x7f, 32); /* no such block */
  d = move(DP_OP_READ, 903);
  CHECK(dp_door_submit(&door, &d, 1) == 0);
  record = end_of(903, NULL);
  CHECK(record.status == DP_ERROR_BAD_BLOCK && record.error_block == 1 && record.error_errno == ENOENT);
  CHECK(dp_door_submit(&door, &d, 0) == -EMSGSIZE);
  CHECK(dp_door_submit(&door, &d, door.submission_entries + 1) == -EMSGSIZE);
}

/* The host ends with a program of ours in flight. */
static void linger(void) {
  struct dp_descriptor d = dp_describe(DP_OP_BUMP, 904, 0);
  struct dp_record record;
  d.wait[0].counter = COUNTER_GATE;
  d.wait[0].value = UINT64_MAX;
  CHECK(dp_door_submit(&door, &d, 1) == 0);
  printf("lingering\n");
  fflush(stdout);
  CHECK(end_of(904, NULL).status == DP_ERROR_CLOSED);
  CHECK(dp_door_wait(&door, &record, PATIENCE_MS) == -EPIPE);
}

int main(int argc, char** argv) {
  struct dp_door second;
  struct dp_record saved, loaded;
  uint32_t steps = 0;
  CHECK(argc >= 7);
  buffer_geometry = (uint32_t)atoi(argv[2]);
  layers = (uint32_t)atoi(argv[3]);
  block_tokens = (uint32_t)atoi(argv[4]);
  block_bytes = (uint64_t)atoll(argv[5]);
  const uint64_t delay_us = (uint64_t)atoi(argv[6]) * 1000u;

  CHECK(dp_door_open(&door, argv[1], DP_ROLE_PRODUCER) == 0);
  CHECK(dp_door_open(&second, argv[1], DP_ROLE_PRODUCER) == -EBUSY);
  own_memory();
  write_tables();
  fill();
  saved = save(1, &steps);
  CHECK(saved.status == DP_ERROR_NONE && saved.tag == 2 && steps == layers);
  CHECK(saved.finished_ns >= saved.submitted_ns);
  CHECK(dp_door_counter(&door, COUNTER_COPIED) == layers);

  memset(memory, 0, BLOCKS * block_bytes);
  CHECK(wrong_bytes() > 0);
  const uint64_t began = clock_us(CLOCK_MONOTONIC);
  const uint64_t cpu = clock_us(CLOCK_PROCESS_CPUTIME_ID);
  loaded = load(2);
  const uint64_t slept = clock_us(CLOCK_MONOTONIC) - began;
  const uint64_t cpu_us = clock_us(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  CHECK(loaded.status == DP_ERROR_NONE);
  CHECK(slept >= delay_us && cpu_us < delay_us / 2); /* it sleeps while it waits */
  CHECK(wrong_bytes() == 0);
  failures();
  printf("{\"saved_bytes\": %llu, \"loaded_bytes\": %llu, \"steps\": %u, \"wrong_bytes\": %llu}\n",
         (unsigned long long)saved.bytes_moved, (unsigned long long)loaded.bytes_moved, steps,
         (unsigned long long)wrong_bytes());
  fflush(stdout);
  if (argc > 7) linger();
  dp_door_close(&door);
  return 0;
}
