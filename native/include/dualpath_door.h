/*
 * Drives a shared door (dualpath_ring.h) from a process of its own, in C11 or C++17 and later, without any
 * library. One thread at a time uses a struct dp_door. Functions that can fail return 0 or -errno.
 *
 *   struct dp_door door;
 *   int rc = dp_door_open(&door, "/run/engine/door.sock", DP_ROLE_PRODUCER);
 *   struct dp_descriptor d = dp_describe(DP_OP_COPY, program, tag);
 *   ... geometries, lists, layers ...
 *   rc = dp_door_submit(&door, &d, 1);              the last descriptor is marked as the program's end
 *   rc = dp_door_wait(&door, &record, timeout_ms);  sleeps; -EPIPE when the host has gone
 *   dp_door_close(&door);
 *
 * docs/door.md explains programs, memory and what the host does.
 */
#ifndef DUALPATH_DOOR_H
#define DUALPATH_DOOR_H

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "dualpath_ring.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dp_door {
  struct dp_door_header* header; /* read-only for an observer */
  size_t bytes;
  int memfd;
  int connection; /* closing it gives the door back */
  int submission_bell;
  int completion_bell;
  uint32_t role;
  uint32_t host_version; /* after -EPROTONOSUPPORT: what the host speaks */
  /* Copies: an observer must not trust what a producer may write over. */
  uint32_t submission_entries;
  uint32_t completion_entries;
  uint32_t counter_entries;
  uint32_t slot_entries;
  uint32_t key_entries;
  struct dp_descriptor* descriptors;
  struct dp_record* records;
  uint64_t* counters;
  uint32_t* slots;
  uint8_t (*keys)[32];
};

/* The builtins are those behind C11's <stdatomic.h>, and C++ knows them too. */
static inline uint32_t dp_load_acquire(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

static inline struct dp_message dp_message_of(enum dp_message_kind kind) {
  struct dp_message message;
  memset(&message, 0, sizeof message);
  message.magic = DP_ABI_MAGIC;
  message.version = DP_ABI_VERSION;
  message.kind = (uint16_t)kind;
  return message;
}

/* Sends a packet, with a descriptor unless fd is -1. */
static inline int dp_send(int socket, const struct dp_message* message, int fd) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part;
  struct msghdr packet;
  struct dp_message copy = *message;
  memset(&control, 0, sizeof control);
  memset(&packet, 0, sizeof packet);
  part.iov_base = &copy;
  part.iov_len = sizeof copy;
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (fd >= 0) {
    packet.msg_control = control.bytes;
    packet.msg_controllen = sizeof control.bytes;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  for (;;) {
    if (sendmsg(socket, &packet, MSG_NOSIGNAL) == (ssize_t)sizeof copy) return 0;
    if (errno != EINTR) return -errno;
  }
}

/* Receives a packet and up to three descriptors (-1 where none came); waits for it. */
static inline int dp_receive(int socket, struct dp_message* message, int fds[3]) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(3 * sizeof(int))];
  } control;
  struct iovec part;
  struct msghdr packet;
  struct cmsghdr* header;
  ssize_t bytes;
  memset(&packet, 0, sizeof packet);
  part.iov_base = message;
  part.iov_len = sizeof *message;
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control.bytes;
  packet.msg_controllen = sizeof control.bytes;
  fds[0] = fds[1] = fds[2] = -1;
  do {
    bytes = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return -errno;
  if (bytes == 0) return -EPIPE;
  for (header = CMSG_FIRSTHDR(&packet); header != NULL; header = CMSG_NXTHDR(&packet, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    }
  }
  if (bytes != (ssize_t)sizeof *message || message->magic != DP_ABI_MAGIC) return -EPROTO;
  return 0;
}

static inline void dp_door_close(struct dp_door* door) {
  if (door->header != NULL) munmap(door->header, door->bytes);
  if (door->memfd >= 0) close(door->memfd);
  if (door->submission_bell >= 0) close(door->submission_bell);
  if (door->completion_bell >= 0) close(door->completion_bell);
  if (door->connection >= 0) close(door->connection);
  memset(door, 0, sizeof *door);
  door->memfd = door->submission_bell = door->completion_bell = door->connection = -1;
}

static inline int dp_door_connect(struct dp_door* door, const char* path) {
  struct sockaddr_un address;
  struct dp_message message = dp_message_of(DP_MESSAGE_HELLO);
  int fds[3];
  int rc;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  door->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (door->connection < 0) return -errno;
  if (connect(door->connection, (const struct sockaddr*)&address, sizeof address) != 0) return -errno;
  message.role = door->role;
  rc = dp_send(door->connection, &message, -1);
  if (rc == 0) rc = dp_receive(door->connection, &message, fds);
  if (rc != 0) return rc;
  door->memfd = fds[0];
  door->submission_bell = fds[1];
  door->completion_bell = fds[2];
  door->host_version = message.version;
  if (message.kind != DP_MESSAGE_WELCOME) return -EPROTO;
  if (message.status == DP_DOOR_VERSION) return -EPROTONOSUPPORT;
  if (message.status == DP_DOOR_BUSY) return -EBUSY;
  if (message.status != DP_DOOR_OK) return -EINVAL;
  door->bytes = (size_t)message.bytes;
  return 0;
}

/* Maps what came and takes copies of what it says. */
static inline int dp_door_map(struct dp_door* door) {
  const int protection = door->role == DP_ROLE_PRODUCER ? PROT_READ | PROT_WRITE : PROT_READ;
  char* base = (char*)mmap(NULL, door->bytes, protection, MAP_SHARED, door->memfd, 0);
  const struct dp_door_header* header = (const struct dp_door_header*)base;
  if (base == (char*)MAP_FAILED) return -errno;
  door->header = (struct dp_door_header*)base;
  if (header->magic != DP_ABI_MAGIC || header->total_bytes != door->bytes) return -EPROTO;
  if (header->version != DP_ABI_VERSION || header->descriptor_bytes != sizeof(struct dp_descriptor) ||
      header->record_bytes != sizeof(struct dp_record)) {
    return -EPROTONOSUPPORT;
  }
  door->submission_entries = header->submission_entries;
  door->completion_entries = header->completion_entries;
  door->counter_entries = header->counter_entries;
  door->slot_entries = header->slot_entries;
  door->key_entries = header->key_entries;
  door->descriptors = (struct dp_descriptor*)(base + header->submission_offset);
  door->records = (struct dp_record*)(base + header->completion_offset);
  door->counters = (uint64_t*)(base + header->counter_offset);
  door->slots = (uint32_t*)(base + header->slot_offset);
  door->keys = (uint8_t(*)[32])(base + header->key_offset);
  return 0;
}

/* -EBUSY: the door has its producer; -EPROTONOSUPPORT: another version, see host_version. */
static inline int dp_door_open(struct dp_door* door, const char* path, enum dp_role role) {
  int rc;
  memset(door, 0, sizeof *door);
  door->memfd = door->submission_bell = door->completion_bell = door->connection = -1;
  door->role = (uint32_t)role;
  rc = dp_door_connect(door, path);
  if (rc == 0) rc = dp_door_map(door);
  if (rc != 0) {
    const uint32_t version = door->host_version;
    dp_door_close(door);
    door->host_version = version;
  }
  return rc;
}

/* A descriptor of one step that waits for nothing, signals nothing and names nothing. */
static inline struct dp_descriptor dp_describe(enum dp_op op, uint32_t program, uint32_t tag) {
  struct dp_descriptor d;
  memset(&d, 0, sizeof d);
  d.op = (uint8_t)op;
  d.traffic_class = DP_CLASS_KV;
  d.program = program;
  d.tag = tag;
  d.peer = d.src_geometry = d.dst_geometry = DP_NONE;
  d.layer_count = 1;
  d.wait[0].counter = d.wait[1].counter = DP_NONE;
  d.signal[0].counter = d.signal[1].counter = DP_NONE;
  return d;
}

/* Wakes the native side if it sleeps: after descriptors were published or a counter was raised. */
static inline void dp_door_ring(struct dp_door* door) {
  const uint64_t one = 1;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(&door->header->submission.sleeping, __ATOMIC_SEQ_CST) != 0) {
    const ssize_t n = write(door->submission_bell, &one, sizeof one); /* full: it has been rung */
    (void)n;
  }
}

/* One program; marks its last descriptor. -EAGAIN when the ring has no room for all of it now, -EMSGSIZE when
 * it never will. */
static inline int dp_door_submit(struct dp_door* door, const struct dp_descriptor* program, uint32_t count) {
  struct dp_ring_index* ring = &door->header->submission;
  const uint32_t tail = ring->tail; /* the producer's own */
  const uint32_t used = tail - dp_load_acquire(&ring->head);
  uint32_t i;
  if (count == 0 || count > door->submission_entries) return -EMSGSIZE;
  if (used > door->submission_entries || count > door->submission_entries - used) return -EAGAIN;
  for (i = 0; i < count; i++) {
    struct dp_descriptor* entry = &door->descriptors[(tail + i) & (door->submission_entries - 1)];
    *entry = program[i];
    if (i == count - 1) entry->flags |= DP_FLAG_END;
  }
  __atomic_store_n(&ring->tail, tail + count, __ATOMIC_SEQ_CST);
  dp_door_ring(door);
  return 0;
}

/* Takes the next record: 1, or 0 when there is none. */
static inline int dp_door_poll(struct dp_door* door, struct dp_record* record) {
  struct dp_ring_index* ring = &door->header->completion;
  const uint32_t head = ring->head; /* the consumer's own */
  if (head == __atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST)) return 0;
  *record = door->records[head & (door->completion_entries - 1)];
  __atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
  return 1;
}

/* Takes the next record, sleeping until it comes. -ETIMEDOUT after timeout_ms (-1: never), -EPIPE when the
 * host has closed the door and no record is left. */
static inline int dp_door_wait(struct dp_door* door, struct dp_record* record, int timeout_ms) {
  struct dp_ring_index* ring = &door->header->completion;
  for (;;) {
    struct pollfd fds[2];
    uint64_t count;
    ssize_t n;
    int ready;
    if (dp_door_poll(door, record) != 0) return 0;
    __atomic_store_n(&ring->sleeping, 1, __ATOMIC_SEQ_CST);
    if (dp_door_poll(door, record) != 0) { /* it came in between */
      __atomic_store_n(&ring->sleeping, 0, __ATOMIC_RELAXED);
      return 0;
    }
    fds[0].fd = door->completion_bell;
    fds[1].fd = door->connection;
    fds[0].events = POLLIN;
    fds[1].events = 0; /* POLLHUP comes unasked */
    ready = poll(fds, 2, timeout_ms);
    __atomic_store_n(&ring->sleeping, 0, __ATOMIC_RELAXED);
    if (ready < 0 && errno != EINTR) return -errno;
    if (ready == 0) return dp_door_poll(door, record) != 0 ? 0 : -ETIMEDOUT;
    if (ready < 0) continue;
    n = read(door->completion_bell, &count, sizeof count); /* it does not wait */
    (void)n;
    if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) {
      return dp_door_poll(door, record) != 0 ? 0 : -EPIPE;
    }
  }
}

/* For observers: the record at *cursor, which begins at the completion ring's tail and moves on. 1, 0 when
 * there is none yet, -ESTALE when records went by unseen: *cursor is at the newest then. */
static inline int dp_door_observe(const struct dp_door* door, uint32_t* cursor, struct dp_record* record) {
  const uint32_t* at = &door->header->completion.tail;
  uint32_t tail = dp_load_acquire(at);
  if (tail == *cursor) return 0;
  *record = door->records[*cursor & (door->completion_entries - 1)];
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  tail = dp_load_acquire(at);
  if (tail - *cursor >= door->completion_entries) { /* the entry may have been written anew meanwhile */
    *cursor = tail;
    return -ESTALE;
  }
  ++*cursor;
  return 1;
}

static inline uint64_t dp_door_counter(const struct dp_door* door, uint32_t index) {
  return __atomic_load_n(&door->counters[index], __ATOMIC_ACQUIRE);
}

/* Adds to a counter that programs wait for. */
static inline void dp_door_bump(struct dp_door* door, uint32_t index, uint64_t value) {
  __atomic_fetch_add(&door->counters[index], value, __ATOMIC_ACQ_REL);
  dp_door_ring(door);
}

/* What is not under way of the program never happens; its record comes all the same. */
static inline int dp_door_cancel(struct dp_door* door, uint32_t program) {
  struct dp_message message = dp_message_of(DP_MESSAGE_CANCEL);
  message.value = program;
  return dp_send(door->connection, &message, -1);
}

/* Hands memory over to the host and waits for the number of the geometry that it makes of it. The memfd must
 * be sealed against shrinking (F_SEAL_SHRINK). -EINVAL when the host refuses. */
static inline int dp_door_offer_memory(struct dp_door* door, int memfd, uint64_t bytes, uint32_t tag,
                                       uint32_t* geometry) {
  struct dp_message message = dp_message_of(DP_MESSAGE_MEMORY);
  int fds[3];
  int rc;
  message.tag = tag;
  message.bytes = bytes;
  rc = dp_send(door->connection, &message, memfd);
  if (rc == 0) rc = dp_receive(door->connection, &message, fds);
  if (rc != 0) return rc;
  if (message.kind != DP_MESSAGE_GEOMETRY || message.tag != tag) return -EPROTO;
  if (message.status == DP_DOOR_FULL) return -EAGAIN;
  if (message.status != DP_DOOR_OK) return -EINVAL;
  *geometry = message.value;
  return 0;
}

#ifdef __cplusplus
}
#endif

#endif /* DUALPATH_DOOR_H */
