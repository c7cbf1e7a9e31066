// Random programs of posts, polls, faults, drains and destructions over several connections, against what
// must hold whatever happens: no queue overfull, no slot freed early, no memory reused in flight (canaries on
// both sides), order within a queue pair, and every operation ends once.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "pair.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kConnections = 3;
constexpr uint32_t kSlots = 24;
constexpr uint32_t kSlotBytes = 256;
constexpr std::byte kFreeSource{0xaa}, kFreeTarget{0xbb};

// Slots of registered memory. A free one is full of canaries, and is looked at before it is used again.
struct Slots {
  Registered memory;
  std::byte canary;
  std::vector<uint32_t> free;
  uint32_t touched = 0;  // found written while free

  Slots(const std::shared_ptr<Device>& device, std::byte canary)
      : memory(device, kSlots * kSlotBytes), canary(canary) {
    for (uint32_t i = 0; i < kSlots; i++) give_back(i);
  }
  std::byte* at(uint32_t slot) { return memory.base() + slot * kSlotBytes; }
  void give_back(uint32_t slot) {
    std::fill_n(at(slot), kSlotBytes, canary);
    free.insert(free.begin(), slot);
  }
  uint32_t take() {
    const uint32_t slot = free.back();  // the one that was free longest comes last: late writes are seen
    free.pop_back();
    check(slot);
    return slot;
  }
  void check(uint32_t slot) {
    if (std::any_of(at(slot), at(slot) + kSlotBytes, [&](std::byte b) { return b != canary; })) touched++;
  }
  MemoryOwner* owner(uint32_t slot) {
    return new MemoryOwner(
        [](void* slots, uint64_t freed) {
          static_cast<Slots*>(slots)->give_back(static_cast<uint32_t>(freed));
        },
        this, slot);
  }
};

struct Transfer {
  Tracked tracked;
  uint32_t connection = 0;
  uint32_t number = 0;  // in the order begun on its connection
  std::unique_ptr<MemoryOwner> source, target;
  uint32_t source_slot = 0, target_slot = 0;
  uint32_t immediate = 0;
  std::byte pattern{};
  uint32_t requests = 0, appended = 0;
  bool sealed = false, announced = false, announcing = false, told = false;
};

struct Connection {
  std::unique_ptr<QueuePair> a, b;
  std::unique_ptr<Chain> chain;
  Transfer* sending = nullptr;  // still has requests to post
  uint32_t begun = 0, last_announced = 0;
  uint32_t built = 0;
};

class World final : public QueuePairEvents {
 public:
  explicit World(uint64_t seed)
      : random_(seed), fabric_(std::make_shared<stub::StubFabric>(stub::StubOptions{.seed = seed * 7 + 1})) {
    options_.send_entries = 4 + pick(28);
    options_.receive_entries = 4 + pick(12);
    options_.inline_bytes = pick(2) * 64;
    const uint32_t entries = kConnections * (options_.send_entries + options_.receive_entries);
    a_.open(fabric_, "stub0", entries);
    b_.open(fabric_, "stub1", entries);
    sources_ = std::make_unique<Slots>(a_.device, kFreeSource);
    targets_ = std::make_unique<Slots>(b_.device, kFreeTarget);
    for (Connection& connection : connections_) build(connection);
  }

  void run(uint32_t steps) {
    for (uint32_t i = 0; i < steps && !::testing::Test::HasFailure(); i++) step();
    for (Connection& connection : connections_) {
      if (connection.sending != nullptr) give_up(*connection.sending);
      connection.a->drain();
      connection.b->drain();
    }
    for (int i = 0; i < 2000; i++) poll(64);
    for (const auto& transfer : transfers_) {
      ASSERT_EQ(transfer->tracked.ended, 1u) << "an operation that did not end";
      transfer->source->retire();
      transfer->target->retire();
    }
    EXPECT_EQ(sources_->free.size(), kSlots) << "memory that did not come home";
    EXPECT_EQ(targets_->free.size(), kSlots);
    for (uint32_t i = 0; i < kSlots; i++) {
      sources_->check(i);
      targets_->check(i);
    }
    EXPECT_EQ(sources_->touched + targets_->touched, 0u) << "written while free";
    EXPECT_EQ(fabric_->counters().refused_full, 0u);
    EXPECT_LE(fabric_->counters().most_outstanding, options_.send_entries);
    succeeded_total += succeeded_;
    failed_total += failed_;
  }

  static inline uint64_t succeeded_total = 0, failed_total = 0;

 private:
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void build(Connection& connection) {
    connection.a.reset();
    connection.b.reset();
    const uint32_t psn = pick(1 << 24);
    ASSERT_TRUE(QueuePair::create(*a_.completion_queue, options_, psn, this, &connection.a).ok());
    ASSERT_TRUE(QueuePair::create(*b_.completion_queue, options_, psn + 1, this, &connection.b).ok());
    for (auto [from, to] :
         {std::pair{&connection.a, &connection.b}, std::pair{&connection.b, &connection.a}}) {
      PathParameters path;
      path.peer = (*to)->address();
      path.gid_index = 2;
      path.mtu_bytes = 4096;
      ASSERT_TRUE((*from)->connect(path).ok());
    }
    connection.chain = std::make_unique<Chain>(connection.a->chain_options());
    connection.built++;
  }

  void step() {
    Connection& connection = connections_[pick(kConnections)];
    const uint32_t what = pick(100);
    if (what < 30) {
      start(connection);
    } else if (what < 55) {
      go_on(connection);
    } else if (what < 90) {
      poll(1 + pick(8));
    } else if (what < 92) {
      const ibv_wc_status statuses[] = {IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_LOC_LEN_ERR};
      fabric_->fail_request(connection.a->qp_num(), 1 + pick(10), statuses[pick(3)]);
    } else if (what < 93) {
      fabric_->fail_post(1 + pick(8), pick(2) == 0 ? ENOMEM : EINVAL);
    } else if (what < 94) {
      (pick(2) == 0 ? connection.a : connection.b)->drain();
    } else if (what < 95) {
      if (connection.sending != nullptr) give_up(*connection.sending);
      connection.a.reset();  // in the middle of whatever there is
      build(connection);
    } else {
      rebuild(connection);
    }
    for (const Connection& each : connections_) {
      ASSERT_LE(each.a->room(), options_.send_entries - 1);
    }
  }

  // What the control plane does: one side broke, the other takes its side down as well, both build anew.
  void rebuild(Connection& connection) {
    const bool a_over = connection.a->state() != QueuePair::State::kReady;
    const bool b_over = connection.b->state() != QueuePair::State::kReady;
    if (a_over) connection.b->drain();
    if (b_over) connection.a->drain();
    const auto drained = QueuePair::State::kDrained;
    if (connection.a->state() != drained || connection.b->state() != drained) return;
    if (connection.sending != nullptr) give_up(*connection.sending);
    build(connection);
  }

  void start(Connection& connection) {
    if (connection.sending != nullptr || sources_->free.size() < 2 || targets_->free.size() < 2) return;
    if (connection.a->state() != QueuePair::State::kReady) return;
    if (connection.b->state() != QueuePair::State::kReady) return;
    auto transfer = std::make_unique<Transfer>();
    transfer->connection = static_cast<uint32_t>(&connection - connections_);
    transfer->number = ++connection.begun;
    transfer->pattern = static_cast<std::byte>(1 + pick(0x7f));
    transfer->requests = 1 + pick(2 * options_.send_entries);
    transfer->source_slot = sources_->take();
    transfer->target_slot = targets_->take();
    std::fill_n(sources_->at(transfer->source_slot), kSlotBytes, transfer->pattern);
    transfer->source.reset(sources_->owner(transfer->source_slot));
    transfer->target.reset(targets_->owner(transfer->target_slot));
    LandingTable& landings = connection.b->landings();
    ASSERT_TRUE(landings.open(transfer->target->hold(), transfers_.size(), &transfer->immediate));
    transfer->tracked.begin(transfer->source->hold());
    Transfer* const started = transfer.get();
    connection.sending = started;
    transfers_.push_back(std::move(transfer));
    go_on(connection);
    // A deadline: the memory is wanted back, and must not come back yet.
    if (pick(2) == 0) started->source->retire();
    if (pick(2) == 0) started->target->retire();
  }

  void append(Transfer& transfer, Chain& chain) {
    const uint32_t apart = kSlotBytes / (2 * options_.send_entries);
    while (transfer.appended < transfer.requests) {
      const uint64_t from =
          sources_->memory.address(transfer.source_slot * kSlotBytes + transfer.appended * apart);
      const uint64_t to =
          targets_->memory.address(transfer.target_slot * kSlotBytes + transfer.appended * apart);
      const uint32_t bytes = transfer.appended + 1 == transfer.requests ? apart : std::max(1u, apart - 1);
      if (!chain.write(
              {from, to, sources_->memory.region->local_key(), targets_->memory.region->remote_key(), bytes}))
        return;
      transfer.appended++;
    }
    if (!transfer.announcing) transfer.announcing = chain.announce(transfer.immediate);
  }

  void go_on(Connection& connection) {
    Transfer* const transfer = connection.sending;
    if (transfer == nullptr) return;
    append(*transfer, *connection.chain);
    const PostResult result = connection.a->post(*connection.chain, &transfer->tracked.operation);
    if (result == PostResult::kFailed) return give_up(*transfer);
    if (result == PostResult::kAgain || !transfer->announcing) return;
    connection.sending = nullptr;
    transfer->sealed = true;
    transfer->tracked.operation.seal();
  }

  void give_up(Transfer& transfer) {
    Connection& connection = connections_[transfer.connection];
    connection.chain->clear();
    connection.sending = nullptr;
    WorkError error;
    error.blame = Blame::kCancelled;
    transfer.tracked.operation.fail(error);
    transfer.sealed = true;
    transfer.tracked.operation.seal();
  }

  void poll(uint32_t budget) {
    ASSERT_GE(a_.completion_queue->poll(budget), 0);
    ASSERT_GE(b_.completion_queue->poll(budget), 0);
    for (const auto& transfer : transfers_) {
      if (transfer->tracked.ended == 0 || transfer->told) continue;
      transfer->told = true;
      ended(*transfer);
    }
  }

  void ended(Transfer& transfer) {
    ASSERT_EQ(transfer.tracked.ended, 1u);
    const bool good = transfer.tracked.operation.error().ok();
    (good ? succeeded_ : failed_)++;
    if (good && transfer.target->holds() != 0) {
      const uint32_t apart = kSlotBytes / (2 * options_.send_entries);
      for (uint32_t i = 0; i < transfer.requests; i++) {
        const std::byte arrived = targets_->at(transfer.target_slot)[i * apart];
        ASSERT_EQ(arrived, transfer.pattern) << "completed, yet something else is there";
      }
    }
    transfer.source->retire();
    transfer.target->retire();  // the peer gives up its claim as well; the landing still holds the memory
    // The peer's word: our completions have come, we shall not write there again. After a failure some
    // requests may be unheard of, so that then only its own queue pair can tell.
    if (good) connections_[transfer.connection].b->landings().close(transfer.immediate);
  }

  void on_announced(QueuePair& at, uint64_t cookie) override {
    Transfer& transfer = *transfers_[cookie];
    Connection& connection = connections_[transfer.connection];
    ASSERT_EQ(&at, connection.b.get());
    ASSERT_FALSE(transfer.announced);
    transfer.announced = true;
    ASSERT_GT(transfer.number, connection.last_announced) << "out of order";
    connection.last_announced = transfer.number;
    const uint32_t apart = kSlotBytes / (2 * options_.send_entries);
    const std::byte* const last = targets_->at(transfer.target_slot) + (transfer.requests - 1) * apart;
    ASSERT_EQ(last[0], transfer.pattern) << "announced before it was there";
  }
  void on_message(QueuePair&, std::span<const std::byte>) override {}
  void on_broken(QueuePair&, const WorkError& error) override { ASSERT_FALSE(error.ok()); }
  void on_drained(QueuePair& queue_pair) override { ASSERT_EQ(queue_pair.landings().open_count(), 0u); }

  std::mt19937_64 random_;
  std::shared_ptr<stub::StubFabric> fabric_;
  QueuePairOptions options_;
  End a_, b_;
  std::unique_ptr<Slots> sources_, targets_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  Connection connections_[kConnections];
  uint64_t succeeded_ = 0, failed_ = 0;
};

class VerbsProperty : public ::testing::TestWithParam<uint64_t> {};

TEST_P(VerbsProperty, NothingIsLostReusedInFlightOrEndedTwice) {
  const uint64_t succeeded = World::succeeded_total, failed = World::failed_total;
  for (uint64_t i = 0; i < 40 && !HasFailure(); i++) {
    SCOPED_TRACE(GetParam() * 1000 + i);
    World(GetParam() * 1000 + i).run(600);
  }
  EXPECT_GT(World::succeeded_total - succeeded, 500u) << "or the programs test nothing";
  EXPECT_GT(World::failed_total - failed, 100u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, VerbsProperty, ::testing::Range<uint64_t>(1, 7));

}  // namespace
}  // namespace dualpath::test
