// What became of work requests that failed. Only the first error of a queue pair says something; what is
// flushed after it is noise and is counted.
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace dualpath::verbs {

enum class Blame : uint8_t {
  kNone,
  kLocal,      // a fault here (wrong key, length, request): trying again would repeat it
  kRemote,     // the peer or the path: rebuild the connection, with back-off
  kCancelled,  // flushed because this side took the queue pair down
};

struct WorkError {
  Blame blame = Blame::kNone;
  ibv_wc_status status = IBV_WC_SUCCESS;
  int post_errno = 0;  // of ibv_post_send, when it was refused
  uint32_t vendor_error = 0;
  uint32_t qp_num = 0;
  uint64_t position = 0;  // of the request in its send queue, counted from 0
  bool flushed = false;   // not itself at fault: came out after the one that was

  bool ok() const { return blame == Blame::kNone; }
};

// IBV_WC_WR_FLUSH_ERR is kCancelled; whoever knows an earlier error reports that one.
Blame blame_of(ibv_wc_status status);
const char* status_text(ibv_wc_status status);
// "transport retries exhausted (remote), queue pair 17, request 42; the peer ...": with the remedy.
std::string describe(const WorkError& error);

}  // namespace dualpath::verbs
