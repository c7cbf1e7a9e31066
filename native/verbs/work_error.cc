#include "verbs/work_error.h"

#include <string.h>

namespace dualpath::verbs {
namespace {

struct Row {
  ibv_wc_status status;
  Blame blame;
  const char* text;
  const char* remedy;
};

constexpr const char* kBug = "this is a fault on this side, please report it";

// ibv_poll_cq(3) and the InfiniBand specification, volume 1, 11.6.2.
constexpr Row kRows[] = {
    {IBV_WC_SUCCESS, Blame::kNone, "success", ""},
    {IBV_WC_LOC_LEN_ERR, Blame::kLocal, "local length error", kBug},
    {IBV_WC_LOC_QP_OP_ERR, Blame::kLocal, "local queue pair operation error", kBug},
    {IBV_WC_LOC_EEC_OP_ERR, Blame::kLocal, "local EE context operation error", kBug},
    {IBV_WC_LOC_PROT_ERR, Blame::kLocal, "local protection error (wrong local key or bounds)", kBug},
    {IBV_WC_WR_FLUSH_ERR, Blame::kCancelled, "flushed", "the queue pair was taken down before it ran"},
    {IBV_WC_MW_BIND_ERR, Blame::kLocal, "memory window bind error", kBug},
    {IBV_WC_BAD_RESP_ERR, Blame::kRemote, "bad response from the peer", "the connection is rebuilt"},
    {IBV_WC_LOC_ACCESS_ERR, Blame::kLocal, "local access error", kBug},
    {IBV_WC_REM_INV_REQ_ERR, Blame::kRemote, "the peer found the request invalid",
     "compare path MTU and versions on both sides"},
    {IBV_WC_REM_ACCESS_ERR, Blame::kRemote, "the peer refused access (wrong remote key or bounds)",
     "the peer has closed or registered anew; the connection is rebuilt"},
    {IBV_WC_REM_OP_ERR, Blame::kRemote, "the peer could not carry it out", "the connection is rebuilt"},
    {IBV_WC_RETRY_EXC_ERR, Blame::kRemote, "transport retries exhausted",
     "the peer is gone or the path is down; check cable, GID and DSCP rules"},
    {IBV_WC_RNR_RETRY_EXC_ERR, Blame::kRemote, "the peer had no receive posted, retries exhausted",
     "the peer is stuck or slow; the connection is rebuilt"},
    {IBV_WC_REM_ABORT_ERR, Blame::kRemote, "the peer aborted", "the connection is rebuilt"},
    {IBV_WC_FATAL_ERR, Blame::kLocal, "fatal device error", "reset the device; see the kernel log"},
    {IBV_WC_RESP_TIMEOUT_ERR, Blame::kRemote, "response time-out", "the connection is rebuilt"},
    {IBV_WC_GENERAL_ERR, Blame::kRemote, "general transport error", "the connection is rebuilt"},
};

const Row& row(ibv_wc_status status) {
  for (const Row& found : kRows) {
    if (found.status == status) return found;
  }
  static constexpr Row unknown{IBV_WC_GENERAL_ERR, Blame::kRemote, "unknown error",
                               "the connection is rebuilt"};
  return unknown;
}

}  // namespace

Blame blame_of(ibv_wc_status status) { return row(status).blame; }
const char* status_text(ibv_wc_status status) { return row(status).text; }

std::string describe(const WorkError& error) {
  if (error.ok()) return "success";
  const std::string where =
      ", queue pair " + std::to_string(error.qp_num) + ", request " + std::to_string(error.position);
  if (error.post_errno != 0) {
    return std::string("posting was refused: ") + strerror(error.post_errno) + where + "; " + kBug;
  }
  const Row& found = row(error.status);
  const char* const side = error.blame == Blame::kLocal    ? " (local)"
                           : error.blame == Blame::kRemote ? " (remote)"
                                                           : "";
  const std::string vendor =
      error.vendor_error == 0 ? "" : ", vendor error " + std::to_string(error.vendor_error);
  return found.text + std::string(side) + where + vendor + "; " + found.remedy;
}

}  // namespace dualpath::verbs
