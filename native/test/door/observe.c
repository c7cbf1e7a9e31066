/* Another process that looks on: maps a door read-only and follows records and a counter.
 *
 *   observe SOCKET PROGRAMS COUNTER VALUE      until so many programs ended and the counter stands at the
 * value
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "dualpath_door.h"

int main(int argc, char** argv) {
  struct dp_door door;
  struct dp_record record;
  struct dp_message cancel;
  uint32_t ended = 0, steps = 0, failed = 0;
  if (argc != 5 || dp_door_open(&door, argv[1], DP_ROLE_OBSERVER) != 0) return 2;
  /* The kernel refuses to write, whatever this process asks. */
  if (mmap(NULL, door.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, door.memfd, 0) != MAP_FAILED) return 3;
  if (mprotect(door.header, door.bytes, PROT_READ | PROT_WRITE) == 0) return 4;
  if (door.submission_bell != -1 || door.completion_bell != -1) return 5;
  uint32_t cursor = dp_load_acquire(&door.header->completion.tail);
  const uint32_t programs = (uint32_t)atoi(argv[2]), counter = (uint32_t)atoi(argv[3]);
  const uint64_t value = (uint64_t)atoll(argv[4]);
  printf("watching\n");
  fflush(stdout);
  for (int wait_ms = 0; ended < programs || dp_door_counter(&door, counter) < value; wait_ms++) {
    if (wait_ms > 30000) return 6;
    for (int rc; (rc = dp_door_observe(&door, &cursor, &record)) != 0;) {
      if (rc < 0) return 7;
      if (record.kind == DP_RECORD_STEP) {
        steps++;
      } else {
        ended++;
        failed += record.status != DP_ERROR_NONE;
      }
    }
    poll(NULL, 0, 1); /* an observer has no doorbell */
  }
  printf("{\"ended\": %u, \"failed\": %u, \"steps\": %u, \"counter\": %llu}\n", ended, failed, steps,
         (unsigned long long)dp_door_counter(&door, counter));
  /* An observer asks for nothing: who does loses the connection. */
  cancel = dp_message_of(DP_MESSAGE_CANCEL);
  if (dp_send(door.connection, &cancel, -1) != 0) return 8;
  int fds[3];
  if (dp_receive(door.connection, &cancel, fds) != -EPIPE) return 9;
  dp_door_close(&door);
  return 0;
}
