// One storage operation as a chain of calls: a whole file read (open, read, close), a whole file written and
// published (open, write, [fsync], rename, close, [fsync of the directory]), or a range of a file that is
// open already. Who makes the calls (io_uring, threads) is not its business: it says which come next.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/faults.h"

namespace dualpath {

enum class BlockCall : uint8_t {
  kOpen,
  kTransfer,  // read or write
  kSync,
  kPublish,  // rename to its place, unless something is there
  kOpenDirectory,
  kSyncDirectory,
  kClose,
  kRemove,  // the temporary file of a write that failed
};

struct BlockOp {
  static constexpr size_t kPathBytes = 128;
  static constexpr size_t kMaxCalls = 8;
  static constexpr int kOwnFile = -1;

  // What to do.
  bool write = false;
  bool durable = false;  // a write is on disk, and so is its name, when it ends
  bool direct = false;   // O_DIRECT
  bool offload = false;  // its file system may make whoever calls it wait: io_uring's workers do
  int file = kOwnFile;   // or an index of BlockIo::add_file: only a range of that file is moved
  uint64_t offset = 0;   // in such a file
  int directory_fd = -1;
  std::byte* buffer = nullptr;
  size_t bytes = 0;
  char path[kPathBytes] = {};
  char final_path[kPathBytes] = {};  // writes only

  // What came of it.
  BlockCall call = BlockCall::kOpen;  // the one that failed
  int error = 0;                      // errno of `call`, 0 when all went well
  size_t done = 0;                    // less than bytes after a read that met the end of the file
  bool existed = false;               // a write found its place taken, and left what was there
  bool registered = false;            // went through a registered buffer

  // The owner's.
  void* owner = nullptr;  // who is told that it ended
  void* context = nullptr;
  uint32_t index = 0;
  std::array<uint8_t, 32> key{};
  uint64_t due_ns = 0;
  uint64_t settled = 0;  // of the store, when a write began

  // The chain: calls to make in order, each only if the one before did all that it should.
  std::array<BlockCall, kMaxCalls> chain{};
  uint8_t chain_calls = 0;
  size_t at = 0;              // where the chain's transfer begins; whole pages when direct
  size_t transfer_bytes = 0;  // that it should move
  int injected_errno = 0;     // in its place
  uint8_t retries = 0;
  bool exclusive = true;  // publish only where nothing is
  bool open = false;
  bool created = false;    // its temporary file is there
  bool published = false;  // and has its final name
  bool ending = false;     // only cleaning up is left
  char directory_path[kPathBytes] = {};

  // The implementation's.
  uint8_t place = 0;  // in the table of operations
  int fd = -1;
  int buffer_index = -1;     // of the registered buffer, -1: none
  uint8_t pending = 0;       // requests of the chain that have not answered
  uint8_t failed_index = 0;  // the first call that failed or came short; chain_calls: none
  int result = 0;            // of that call, else of the last
};

// Clears what the last use left and sets up the first chain.
void begin_block(BlockOp& op, FaultPlan* faults);

// The chain has stopped at call `index` with `result` (at least 0, or -errno): a failure, a short transfer,
// or its end. True when the operation has ended; otherwise there is another chain to make.
bool advance_block(BlockOp& op, unsigned index, int result, FaultPlan* faults);

}  // namespace dualpath
