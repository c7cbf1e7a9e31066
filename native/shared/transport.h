// An engine's transport over shared memory: mailboxes for those that send to it, and those it sends to.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/live.h"
#include "shared/peer.h"
#include "transfer/reactor.h"

namespace dualpath::shared {

struct SharedStatistics {
  std::vector<std::pair<uint32_t, uint64_t>> sent_bytes;  // by peer
  uint64_t bad_signals = 0;
  uint32_t mailboxes = 0;  // given out since the start
};

class SharedTransport final : public PeerTransport, public Poller, private StepsOver {
 public:
  static constexpr uint32_t kMaxSteps = 4096;

  // MEMORY_LIMIT, CAPACITY_EXHAUSTED. From the thread that owns the reactor.
  static Status create(std::shared_ptr<TransferEngine> engine, Reactor& reactor,
                       std::shared_ptr<SharedTransport>* out);
  ~SharedTransport() override;
  SharedTransport(const SharedTransport&) = delete;
  SharedTransport& operator=(const SharedTransport&) = delete;

  // The owner's thread.
  // For one sender: the geometries whose memory is shared. INVALID_ARGUMENT where none is, CAPACITY_EXHAUSTED
  // when all mailboxes are out.
  Status invite(Invitation* out);
  // That sender writes nothing from now on: true once nothing of it is under way either. One that was stopped
  // in the midst of a copy is under way until it goes on.
  bool shut_out(uint32_t mailbox);
  Status add_peer(const std::string& name, const Invitation& invitation, uint32_t* id);
  void lose(uint32_t peer);
  SharedStatistics statistics() const;

  // The reactor's thread.
  void close(uint64_t now) override;
  bool quiet(uint64_t now) override;
  void leave() override;
  uint64_t next_due() const override;
  const std::string& key() const override { return key_; }
  bool poll(uint64_t now) override;
  void arm() override;
  std::array<int, 2> watched() const override { return {bell_.get(), -1}; }
  void stop() override { leave(); }

 private:
  explicit SharedTransport(std::shared_ptr<TransferEngine> engine);
  SharedStep* take_step() override;
  void step_over(SharedStep* step) override { over_.push_back(step); }
  bool take_signals();
  bool tell_ends();

  const std::weak_ptr<TransferEngine> engine_;  // it holds this
  const std::shared_ptr<Door> door_;
  const std::string key_;
  std::unique_ptr<Segment> segment_;
  store::ScopedFd bell_, bell_end_;  // a pipe: what it is read from, what peers write to
  std::atomic<uint32_t> mailboxes_{0};
  std::atomic<uint64_t> bad_signals_{0};
  std::vector<std::pair<uint32_t, SharedPeer*>> peers_;  // the engine's

  // The reactor's thread.
  std::vector<SharedStep> steps_;
  std::vector<SharedStep*> free_, over_, telling_;
  uint32_t in_use_ = 0;
  uint32_t armed_ = 0;  // polls until it is not asleep any more
  uint64_t closing_until_ns_ = kNever;
  bool left_ = false;
  Live<LiveKind::kSharedTransport> live_;
};

}  // namespace dualpath::shared
