// One engine's traffic manager, native side: takes programs from its door, issues each step when its
// waits hold, raises its signals when the bytes are in place, posts a record when a program has ended.
// Runs on a reactor's thread; what other threads may call says so.
#pragma once
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/faults.h"
#include "core/live.h"
#include "core/nic_link.h"
#include "core/rate_link.h"
#include "store/block_store.h"
#include "transfer/copy_way.h"
#include "transfer/door.h"
#include "transfer/loopback.h"
#include "transfer/peer.h"
#include "uring/block_io.h"

namespace dualpath {

struct EngineLinks {
  // Of the engine's node (SNIC) and of the engine (CNIC), one a direction; shared by name.
  std::shared_ptr<RateLink> storage_read;
  std::shared_ptr<RateLink> storage_write;
  std::shared_ptr<NicLink> nic_egress;
  std::shared_ptr<NicLink> nic_ingress;
};

struct EngineOptions {
  std::string name;
  std::shared_ptr<Door> door;
  EngineLinks links;
  std::shared_ptr<store::BlockStore> store;  // may be null: no READ or WRITE then
  bool durable_writes = false;
  uint32_t max_programs = 1024;                // in flight; at most 65536, less than completion entries
  uint32_t max_descriptors = 8192;             // in flight; at most 2^20
  uint64_t storage_lookahead_ns = 25'000'000;  // storage work queued ahead of the link: hides the disk
  uint64_t nic_lookahead_ns = 1'000'000;
  uint32_t chunk_bytes = 256 << 10;  // moved for one descriptor before another gets its turn
  CopyWish copy_way = CopyWish::kAuto;
  uint64_t copy_in_flight_bytes = 16 << 20;  // at most, of copies that the CPU does not do itself
  std::function<void()> wake_owner;          // a record was posted and the owner sleeps
};

struct EngineStatistics {
  std::atomic<uint64_t> read_bytes{0}, read_blocks{0}, bad_blocks{0};
  std::atomic<uint64_t> write_bytes{0}, write_blocks{0}, write_skipped_blocks{0};
  std::atomic<uint64_t> registered_bytes{0};  // of both, through registered buffers
  std::atomic<uint64_t> copy_bytes{0}, copy_steps{0};
  std::array<std::atomic<uint64_t>, kCopyWays> copy_bytes_by_way{};  // of copy_bytes
  std::array<std::atomic<uint64_t>, kNicRefusals>
      copy_refusals{};  // steps that the NIC did not carry, by cause
  std::atomic<uint64_t> send_bytes{0}, send_steps{0};
  std::atomic<uint64_t> descriptors{0}, programs{0}, failed_programs{0};
  std::atomic<uint64_t> waits_counter{0}, waits_link{0}, waits_queue{0},
      waits_peer{0};                     // looks that found it blocked, by cause
  std::atomic<uint64_t> door_errors{0};  // looks that found a ring's index where it cannot be
};

class TransferEngine final : private StepOwner {
 public:
  static constexpr uint32_t kMaxPeers = 4096;
  static constexpr uint32_t kMaxStepsInFlight = 8;  // of one descriptor
  static constexpr uint16_t kNoStep = UINT16_MAX;

  static Status create(EngineOptions options, FaultPlan* faults, std::shared_ptr<TransferEngine>* out);
  ~TransferEngine();

  // The owner's thread.
  const EngineOptions& options() const { return options_; }
  Door& door() { return *options_.door; }
  Status add_geometry(std::shared_ptr<const Geometry> geometry, uint32_t* id);
  std::shared_ptr<const Geometry> geometry(uint32_t id) const;
  Status connect(const std::string& name, uint32_t* peer);
  Status add_peer(std::unique_ptr<Peer> peer, uint32_t* id);
  const char* peer_name(uint32_t id) const { return peers_[id]->name(); }
  void request_cancel(uint32_t program);  // its record comes when nothing of it is in flight
  // Peers no longer reach it and its name is free; every program ends with CLOSED or better. After either
  // request ring the reactor.
  void request_close();
  const EngineStatistics& statistics() const { return statistics_; }

  // The reactor's thread.
  void attach(std::shared_ptr<PeerTransport> transport);
  // The NIC that carries copies from now on, INVALID_ARGUMENT when there is one; and the reasons why it did
  // not carry some, counted by NicRefusal.
  Status attach(std::shared_ptr<CopyCarrier> nic);
  // Each of these returns whether it moved anything.
  bool ingest(uint64_t now);
  bool fire_due(uint64_t now, BlockIo& io);
  bool advance(uint64_t now, BlockIo& io);
  uint64_t next_due() const;  // when time alone makes work for it
  void finished(BlockOp* op, uint64_t now, BlockIo& io);
  void leave(BlockIo& io);  // it is not busy and will not be again
  void arm();               // before sleeping: the owner must ring
  void disarm();
  bool direct_io() const { return direct_io_; }  // whether the store takes O_DIRECT
  bool busy(uint64_t now);

 private:
  struct Program {
    uint32_t id = 0;    // 0: free
    bool open = false;  // its END has not come yet
    uint32_t descriptors = 0;
    uint32_t active = 0;
    dp_record record{};
  };
  struct Active {
    dp_descriptor d{};
    Program* program = nullptr;  // nullptr: retired
    uint32_t index = 0;          // in the program
    uint16_t next_step = 0;      // to start, or started and not all issued
    bool step_open = false;      // READ, WRITE: until the whole list is done
    uint32_t cursor = 0;         // next block of the open step (READ, WRITE: of the list)
    uint64_t egress_end = 0;     // of the open step, in its class's queue on either link
    uint64_t ingress_end = 0;
    uint64_t ready_ns = 0;           // READ, WRITE: since when blocks may be issued
    uint32_t in_flight = 0;          // steps; for READ and WRITE blocks
    uint32_t blocks_done = 0;        // READ, WRITE
    uint16_t finished_prefix = 0;    // steps 0 .. finished_prefix - 1 have finished
    uint32_t finished_ahead = 0;     // bit i: step finished_prefix + i has finished too
    CopyWay way = CopyWay::kMemcpy;  // COPY: of the open step
    uint16_t redo_step = kNoStep;    // COPY: that the NIC began and another way has to do
    PeerStep* peer_step = nullptr;   // the open step, as far as its peer carries it
  };
  struct Timer {
    uint64_t due_ns;
    Active* active;  // a step of it, when op is nullptr
    BlockOp* op;
    uint16_t step;
    uint64_t egress_end, ingress_end;  // a step's bytes: it is over when both links have carried them
    bool operator>(const Timer& other) const { return due_ns > other.due_ns; }
  };

  explicit TransferEngine(EngineOptions options, FaultPlan* faults);

  Status room_for_peer() const;

  // engine.cc: programs as wholes
  void fail(Program& program, const Active* active, dp_error error, uint32_t block = DP_NONE,
            int sys_errno = 0);
  void retire(Active& active);
  void drop_retired(size_t next_turn);
  void end_if_over(Program& program);
  void post(const dp_record& record);
  bool has_room();
  bool owe_event(const dp_descriptor& d);
  void post_event(const Active& active, uint16_t step);
  void take_requests();

  // ingest.cc: descriptors in
  uint32_t published();
  Program& program_of(const dp_descriptor& d, uint64_t now);
  void end_of_descriptors(Program& program);
  void accept(const dp_descriptor& d, Program& program);
  bool valid(const dp_descriptor& d) const;
  bool valid_blocks(const dp_descriptor& d) const;
  bool valid_layers(const dp_descriptor& d) const;

  // steps.cc: layers of COPY and SEND, repetitions of NOP and BUMP. True when anything moved.
  bool turn_layers(Active& active, uint64_t now);
  bool turn_bumps(Active& active);
  bool open_step(Active& active);
  void abandon_step(Active& active);
  NicLink* ingress_of(const dp_descriptor& d);
  // carried.cc: steps that a peer carries
  Peer* carrier_of(const Active& active) const;  // nullptr: the engine moves the bytes itself
  bool turn_carried(Active& active);
  bool begin_carried(Active& active);
  void fail_at_peer(Active& active, const PeerFailure& failure, uint32_t block = DP_NONE);
  void step_ended(void* context, uint16_t step, uint64_t bytes, const PeerFailure& failure) override;

  bool links_accept(const Active& active, uint64_t now);
  bool links_carried(Timer& timer, uint64_t now);
  // copies.cc: COPY by the CPU, or by a device's driver
  // A chunk that a driver was given. A stream keeps their order, so that a step's last one stands for it.
  struct DeviceCopy {
    enum class Ends { kNothing, kStep, kAbandoned } ends = Ends::kNothing;
    Timer step;  // it ends
    DeviceStream* stream;
    uint32_t mark;
    uint64_t bytes;
  };
  static constexpr uint32_t kMaxDevices = 8;
  Status prepare_memory(const Geometry& geometry);
  Status register_host(const Geometry& geometry, DeviceMemory& device);
  DeviceStream* stream_of(const dp_descriptor& d) const;
  NicRefusal nic_refusal(const dp_descriptor& d) const;
  bool choose_way(Active& active);
  bool may_recopy(const Active& active) const;
  bool recopy(Active& active, uint16_t step);
  bool device_accepts(DeviceStream& stream);
  bool copy_blocks(Active& active, uint32_t layer, uint32_t count, uint64_t* bytes);
  void flip_byte(const Active& active, uint32_t layer);
  void land_step(Active& active, const Timer& end, uint64_t now);
  bool queue_chunk(Active& active, DeviceStream& stream, uint64_t bytes);
  DeviceCopy* last_chunk_of(const Active& active);
  bool poll_copies(uint64_t now);
  uint64_t move_chunk(Active& active, uint64_t now);
  void finish_step(Active& active, uint16_t step);
  bool waits_hold(const dp_descriptor& d, uint16_t step);
  bool raise(Active& active, const dp_signal& signal, uint32_t index, uint64_t value);
  void advance_prefix(Active& active, uint16_t step);

  // blocks.cc: READ and WRITE
  bool turn_blocks(Active& active, uint64_t now, BlockIo& io);
  bool open_blocks(Active& active, uint64_t now);
  Active* first_to_write(Active* best, Active& active, uint64_t now);
  bool start_block(Active& active, uint64_t now, BlockIo& io);
  void use_memory(uint32_t geometry, BlockIo& io);
  void finish_block(BlockOp* op, BlockIo& io);
  bool judge_block(const BlockOp& op, Active& active);
  void fail_block(const BlockOp& op, Active& active, dp_error error);
  void block_done(Active& active);

  EngineOptions options_;
  FaultPlan* faults_;
  std::shared_ptr<LoopbackEndpoint> endpoint_;
  std::array<std::unique_ptr<Peer>, kMaxPeers> peers_;
  std::atomic<uint32_t> peer_count_{0};
  std::vector<std::shared_ptr<PeerTransport>> transports_;
  // Of the devices whose memory it has; appended to by the owner.
  std::array<std::pair<std::shared_ptr<DeviceMemory>, std::unique_ptr<DeviceStream>>, kMaxDevices> devices_;
  std::atomic<uint32_t> device_count_{0};
  std::vector<std::pair<std::shared_ptr<DeviceMemory>, void*>> host_memory_;  // registered with them
  std::vector<DeviceCopy> device_copies_;
  uint64_t device_bytes_ = 0;              // in flight
  std::shared_ptr<CopyCarrier> copy_nic_;  // the reactor's thread
  uint64_t next_copy_ns_ = kNever;
  bool direct_io_ = true;
  std::bitset<GeometryTable::kMax> used_by_storage_;  // geometries whose arenas were given to BlockIo

  std::vector<Program> programs_;
  Program rejected_;              // takes the descriptors of a program that cannot be
  Program* ingesting_ = nullptr;  // the program whose END is still to come
  // Where this side stands in the rings. The door's copies are for the other side, which may write them.
  uint32_t taken_ = 0;         // submission head
  uint32_t posted_ = 0;        // completion tail
  uint32_t records_owed_ = 0;  // that programs and events in flight will post
  std::vector<Active> pool_;
  std::vector<Active*> free_;
  std::vector<Active*> active_;  // in order of submission
  size_t turn_ = 0;              // whose turn it is in active_; may be one past its end
  std::priority_queue<Timer, std::vector<Timer>, std::greater<Timer>> timers_;
  uint64_t next_link_ns_ = kNever;  // when a busy link takes work again
  uint64_t next_room_ns_ = kNever;  // when to look again for room in the completion ring

  std::mutex requests_mutex_;
  std::vector<uint32_t> cancel_requests_;  // at most one for each place in programs_
  std::atomic<bool> requests_{false};
  bool close_requested_ = false;  // guarded by requests_mutex_
  bool closing_ = false;

  EngineStatistics statistics_;
  Live<LiveKind::kEngine> live_;
};

}  // namespace dualpath
