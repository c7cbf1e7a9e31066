#include "shared/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

namespace dualpath::shared {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kBytes = kHeaderBytes + Segment::kMailboxes * sizeof(Mailbox);
static_assert(sizeof(SegmentHeader) <= kHeaderBytes && sizeof(Mailbox) % 64 == 0);

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Status Segment::create(std::unique_ptr<Segment>* out) {
  auto segment = std::unique_ptr<Segment>(new Segment());
  const int fd = memfd_create("dualpath-mailboxes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* base = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, kBytes) == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0 &&
      getrandom(&segment->nonce_, sizeof segment->nonce_, 0) == sizeof segment->nonce_) {
    base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return Status::error("MEMORY_LIMIT",
                         "mailboxes of " + std::to_string(kBytes) + " bytes in shared memory: " +
                             strerror(error) + "; free memory, or raise 'ulimit -n'",
                         error);
  }
  segment->base_ = base;
  segment->memfd_ = fd;
  SegmentHeader& header = *new (base) SegmentHeader{};  // the rest is zero: shut, empty mailboxes
  header.nonce = segment->nonce_;
  header.magic = kMagic;
  *out = std::move(segment);
  return {};
}

Status Segment::map(int fd, uint64_t nonce, std::unique_ptr<Segment>* out) {
  struct stat facts {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &facts) != 0 || facts.st_size != static_cast<off_t>(kBytes) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return Status::error("INVALID_ARGUMENT",
                         "what the peer names is no segment of mailboxes; run the same "
                         "version of dualpath on both sides");
  }
  void* base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return Status::error("MEMORY_LIMIT", std::string("mapping a peer's mailboxes: ") + strerror(errno),
                         errno);
  }
  auto segment = std::unique_ptr<Segment>(new Segment());
  segment->base_ = base;
  segment->nonce_ = nonce;
  const SegmentHeader& header = segment->header();
  if (header.magic != kMagic || header.nonce != nonce) {
    return Status::error("INVALID_ARGUMENT",
                         "the peer's mailboxes are another process's: it has ended since");
  }
  *out = std::move(segment);
  return {};
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, kBytes);
  if (memfd_ >= 0) close(memfd_);
}

Mailbox& Segment::mailbox(uint32_t index) {
  return reinterpret_cast<Mailbox*>(static_cast<std::byte*>(base_) + kHeaderBytes)[index];
}

}  // namespace dualpath::shared
