/*
 * The door between an engine (TypeScript, Python, C++) and the native data path.
 *
 * One mapping (a memfd, so another process can map it) holds: a header, a submission ring of
 * descriptors, a completion ring of records, a table of monotone counters, a table of slot numbers and
 * a table of block keys. The engine writes descriptors and reads records; native code does the reverse.
 * Everything has a size fixed when the door is made. ARCHITECTURE.md explains the model.
 *
 * This file is the contract: src/transfer/abi.ts restates it and a test compares the two field by
 * field. Change DP_ABI_VERSION with any change of layout or meaning.
 */
#ifndef DUALPATH_RING_H
#define DUALPATH_RING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DP_ABI_MAGIC 0x44504154u /* "DPAT" */
#define DP_ABI_VERSION 2u
#define DP_NONE 0xffffffffu /* no counter, no list, no geometry, no peer */
/* A counter of a peer is named by what the peer said of it: its index, and above that the generation of its
 * present use, 1 to 254. A signal of another generation is dropped and counted. 0: not checked. */
#define DP_COUNTER_BITS 24
#define DP_COUNTER_MASK 0x00ffffffu

enum dp_op {
  DP_OP_NOP = 0,
  DP_OP_READ = 1,  /* keys -> slots of a buffer geometry, over the node's storage link */
  DP_OP_WRITE = 2, /* slots of a buffer geometry -> keys */
  DP_OP_COPY = 3,  /* geometry -> geometry on this engine: by its compute NIC, memcpy or CUDA's driver */
  DP_OP_SEND = 4,  /* geometry here -> geometry of a peer, over the compute network */
  DP_OP_BUMP = 5   /* only waits and signals */
};

/* Chooses the queue pair to a peer; where links are emulated, what an arbiter decides by. */
enum dp_traffic_class { DP_CLASS_INFERENCE = 0, DP_CLASS_KV = 1, DP_CLASS_CONTROL = 2 };

enum dp_descriptor_flags {
  DP_FLAG_END = 1u << 0,   /* last descriptor of its program */
  DP_FLAG_EVENT = 1u << 1, /* post a DP_RECORD_STEP record for each finished step */
};

enum dp_signal_mode {
  DP_SIGNAL_ADD = 0,     /* each finished step adds `value` (for READ/WRITE: each block) */
  DP_SIGNAL_ORDERED = 1, /* stands at `value` + number of leading steps that have all finished */
};

enum dp_record_kind {
  DP_RECORD_PROGRAM = 1, /* a program ended: every byte it moved is where it should be, or it failed */
  DP_RECORD_STEP = 2,    /* a step of a DP_FLAG_EVENT descriptor finished */
};

/* Step s of the descriptor starts once counter[counter + s * counter_step] >= value + s * value_step
 * (unsigned 64-bit). Steps below skip_steps do not wait. */
struct dp_wait {
  uint32_t counter; /* index in the counter table, DP_NONE for no wait */
  uint8_t counter_step;
  uint8_t value_step;
  uint16_t skip_steps;
  uint64_t value;
};

/* Raised when step s has finished, after its bytes are in place. Peers reached by RDMA are signalled by SEND
 * and BUMP only: let a BUMP wait for the others. */
struct dp_signal {
  uint32_t counter; /* index in the counter table of this engine, or of `peer` when remote */
  uint8_t mode;     /* enum dp_signal_mode */
  uint8_t remote;   /* 1: the counter lives at the descriptor's peer */
  uint8_t counter_step;
  uint8_t reserved;
  uint64_t value;
};

/* A step is a layer for COPY and SEND (layer_count steps), the whole list for READ and WRITE (one
 * step), one of layer_count repetitions for NOP and BUMP. So a program over every layer of a
 * model is a handful of descriptors, and queueing it costs the same for 4 layers and for 61.
 *
 * A list of blocks in the slot table has one entry a block, the number of its slot; for a geometry of an
 * engine's pages it has an entry for each of the block's pages (a SEND's destination is always slots). */
struct dp_descriptor {
  uint8_t op;            /* enum dp_op */
  uint8_t traffic_class; /* enum dp_traffic_class */
  uint16_t flags;
  uint32_t program; /* chosen by the submitter, unique among programs in flight, never 0 */
  uint32_t tag;     /* returned in records */
  uint32_t peer;    /* peer handle, DP_NONE for none */
  uint32_t src_geometry;
  uint32_t dst_geometry; /* of the peer's geometry table for SEND */
  uint32_t src_list;     /* first index in the slot table (READ: in the key table) */
  uint32_t dst_list;     /* first index in the slot table (WRITE: in the key table) */
  uint32_t list_count;   /* blocks */
  uint32_t first_block;  /* position in the sequence of the list's first block */
  uint32_t token_begin;  /* COPY, SEND: only tokens [token_begin, token_end) of the sequence move; */
  uint32_t token_end;    /* they lie within the list's blocks */
  uint16_t first_layer;
  uint16_t layer_count;
  uint32_t window_end; /* windowed layers move only tokens that a query at this position can see;
                          0: every layer moves everything */
  uint64_t reserved;
  struct dp_wait wait[2];
  struct dp_signal signal[2];
};

struct dp_record {
  uint8_t kind; /* enum dp_record_kind */
  uint8_t op;   /* of the descriptor that failed or stepped */
  uint16_t step;
  uint32_t program;
  uint32_t tag;
  int32_t status;       /* 0, or a DP_ERROR_* below */
  uint32_t error_index; /* descriptor's index within the program */
  uint32_t error_block; /* first failing position within the list, or DP_NONE */
  uint64_t bytes_moved;
  uint64_t submitted_ns; /* CLOCK_MONOTONIC when native code took the program */
  uint64_t finished_ns;  /* CLOCK_MONOTONIC when it ended */
  int32_t error_errno;
  uint32_t error_call;   /* enum dp_call that failed, 0 for none */
  uint32_t error_offset; /* bytes of the block's file that had been moved; DP_CALL_RDMA: ibv_wc_status */
  uint32_t error_bytes;  /* bytes that were to be moved in all; DP_CALL_RDMA: number of the queue pair */
};

enum dp_call {
  DP_CALL_NONE = 0,
  DP_CALL_OPEN = 1,
  DP_CALL_READ = 2,
  DP_CALL_WRITE = 3,
  DP_CALL_FSYNC = 4,
  DP_CALL_RENAME = 5,
  DP_CALL_VERIFY = 6, /* the bytes came, and are not the block */
  DP_CALL_RDMA = 7,   /* a work request, or posting it (error_errno) */
};

enum dp_error {
  DP_ERROR_NONE = 0,
  DP_ERROR_INVALID = 1,   /* a descriptor names what does not exist or goes out of bounds */
  DP_ERROR_STORAGE = 2,   /* an I/O error: error_errno says which */
  DP_ERROR_BAD_BLOCK = 3, /* a block vanished or is truncated, foreign or corrupt: a miss */
  DP_ERROR_PEER = 4,      /* the peer closed or was never there */
  DP_ERROR_CANCELLED = 5,
  DP_ERROR_CLOSED = 6, /* the engine closed with the program in flight */
  DP_ERROR_DEVICE = 7, /* a copy by a GPU's driver failed; DP_CALL_RDMA: the NIC was wanted and cannot */
};

/* One producer and one consumer each way. The producer writes entries, then publishes `tail`
 * (release), then reads `sleeping` (sequentially consistent) and rings the doorbell if it is set;
 * the consumer sets `sleeping` (sequentially consistent), looks at `tail` once more, then sleeps. */
struct dp_ring_index {
  uint32_t head; /* consumer */
  uint32_t pad0[15];
  uint32_t tail; /* producer */
  uint32_t sleeping;
  uint32_t pad1[14];
};

struct dp_door_header {
  uint32_t magic;
  uint32_t version;
  uint32_t total_bytes;
  uint32_t descriptor_bytes;   /* sizeof(struct dp_descriptor) */
  uint32_t record_bytes;       /* sizeof(struct dp_record) */
  uint32_t submission_entries; /* powers of two */
  uint32_t completion_entries;
  uint32_t counter_entries;
  uint32_t slot_entries;
  uint32_t key_entries;
  uint32_t submission_offset; /* bytes from the header */
  uint32_t completion_offset;
  uint32_t counter_offset; /* u64 each */
  uint32_t slot_offset;    /* u32 each */
  uint32_t key_offset;     /* 32 bytes each */
  uint32_t pad;
  struct dp_ring_index submission;
  struct dp_ring_index completion;
};

/* How another process gets at a shared door: it connects to the path that the host names, a unix socket of
 * type SOCK_SEQPACKET, and says hello; the host answers with descriptors (SCM_RIGHTS). Every packet is one
 * dp_message; what a kind does not use is 0. docs/door.md describes the exchange, dualpath_door.h does it.
 * The connection is the lease on the door: a producer holds it as long as it submits, and either side sees
 * the other's end as its closing. */
enum dp_message_kind {
  DP_MESSAGE_HELLO = 1,    /* to the host, first: role */
  DP_MESSAGE_WELCOME = 2,  /* to the client: status, bytes of the mapping; with its memfd (read-only for an
                              observer) and, for the producer, the submission and the completion bell */
  DP_MESSAGE_CANCEL = 3,   /* producer to host: value is the program; its record says what became of it */
  DP_MESSAGE_MEMORY = 4,   /* producer to host: tag, bytes; with a memfd sealed against shrinking */
  DP_MESSAGE_GEOMETRY = 5, /* host to producer, in answer: tag, status, value is the geometry's number */
};

enum dp_role { DP_ROLE_PRODUCER = 1, DP_ROLE_OBSERVER = 2 };

enum dp_door_status {
  DP_DOOR_OK = 0,
  DP_DOOR_VERSION = 1, /* host and client speak different versions: `version` says the host's */
  DP_DOOR_BUSY = 2,    /* the door has its producer, or as many observers as it takes */
  DP_DOOR_INVALID = 3, /* no such role, or memory that cannot be taken */
  DP_DOOR_FULL = 4,    /* more memory waits for the host's answer than it keeps */
};

struct dp_message {
  uint32_t magic; /* DP_ABI_MAGIC */
  uint16_t version;
  uint16_t kind;  /* enum dp_message_kind */
  uint32_t role;  /* enum dp_role */
  int32_t status; /* enum dp_door_status */
  uint32_t tag;
  uint32_t value;
  uint64_t bytes;
};

#ifdef __cplusplus
}
#define DP_ASSERT_BYTES(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define DP_ASSERT_BYTES(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif
DP_ASSERT_BYTES(dp_wait, 16);
DP_ASSERT_BYTES(dp_signal, 16);
DP_ASSERT_BYTES(dp_descriptor, 128);
DP_ASSERT_BYTES(dp_record, 64);
DP_ASSERT_BYTES(dp_ring_index, 128);
DP_ASSERT_BYTES(dp_door_header, 64 + 2 * 128);
DP_ASSERT_BYTES(dp_message, 32);
#undef DP_ASSERT_BYTES

#endif /* DUALPATH_RING_H */
