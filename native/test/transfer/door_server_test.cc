// A shared door's socket, from the other side: by dualpath_door.h, and by packets that nobody should send.
#include "transfer/door_server.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <thread>

#include "dualpath_door.h"
#include "test/memory/shapes.h"
#include "test/transfer/harness.h"

namespace dualpath::test {
namespace {

class DoorServerTest : public ::testing::Test {
 protected:
  DoorServerTest() {
    DoorOptions sizes = small_door();
    sizes.shared = true;
    EngineOptions options;
    options.max_programs = kProgramPlaces;
    options.name = "shared";
    EXPECT_TRUE(Door::create(sizes, &options.door).ok());
    options.wake_owner = [raw = options.door.get()] { raw->ring_completion(); };
    EXPECT_TRUE(TransferEngine::create(options, &reactor_->faults(), &engine_).ok());
    EXPECT_TRUE(reactor_->add(engine_).ok());
    char folder[] = "/tmp/dualpath-door-XXXXXX";
    if (mkdtemp(folder) == nullptr) std::abort();
    folder_ = folder;
    path_ = folder_ + "/socket";
    const Status status =
        DoorServer::listen({path_, engine_, [this] { reactor_->ring(); }, [this] { changes_++; }}, &server_);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  ~DoorServerTest() override {
    server_.reset();
    engine_->request_close();
    reactor_->ring();
    reactor_->remove(engine_);
    EXPECT_EQ(access(path_.c_str(), F_OK), -1);
    rmdir(folder_.c_str());
  }

  int connect_raw() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path_.c_str());
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  int open(dp_door* door, dp_role role = DP_ROLE_PRODUCER) { return dp_door_open(door, path_.c_str(), role); }

  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::shared_ptr<TransferEngine> engine_;
  std::string folder_;
  std::string path_;
  std::atomic<int> changes_{0};
  std::unique_ptr<DoorServer> server_;
};

TEST_F(DoorServerTest, ItsBellsWakeBothSides) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  for (uint32_t i = 1; i <= 200; i++) {
    if (i % 10 == 0) usleep(2000);  // the reactor sleeps
    dp_descriptor d = dp_describe(DP_OP_BUMP, (i << 16) | (i % kProgramPlaces), i);
    d.wait[0] = wait_for(3, i);
    d.signal[0] = add(4);
    ASSERT_EQ(dp_door_submit(&door, &d, 1), 0);
    if (i % 3 == 0) usleep(1000);
    dp_door_bump(&door, 3, 1);
    dp_record record;
    ASSERT_EQ(dp_door_wait(&door, &record, 20'000), 0) << i;
    ASSERT_EQ(record.tag, i);
    ASSERT_EQ(record.status, DP_ERROR_NONE);
    ASSERT_EQ(dp_door_counter(&door, 4), i);
  }
  dp_door_close(&door);
}

TEST_F(DoorServerTest, AFullRingIsSaidAndNotOverrun) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  std::vector<dp_descriptor> program(64, dp_describe(DP_OP_NOP, 1u << 16, 0));
  EXPECT_EQ(dp_door_submit(&door, program.data(), 65), -EMSGSIZE);
  EXPECT_EQ(dp_door_submit(&door, program.data(), 0), -EMSGSIZE);
  int ended = 0;
  for (uint32_t i = 1; i <= 300; i++) {
    for (dp_descriptor& d : program) d.program = i << 16 | i % kProgramPlaces;
    int rc;
    dp_record record;
    while ((rc = dp_door_submit(&door, program.data(), 64)) == -EAGAIN) {
      while (dp_door_poll(&door, &record) == 1) ended++;
    }
    ASSERT_EQ(rc, 0);
  }
  dp_record record;
  while (ended < 300 && dp_door_wait(&door, &record, 20'000) == 0) ended++;
  EXPECT_EQ(ended, 300);
  EXPECT_EQ(dp_door_wait(&door, &record, 5), -ETIMEDOUT);
  dp_door_close(&door);
}

TEST_F(DoorServerTest, OneProducerAtATimeAndAFewObservers) {
  dp_door producer;
  dp_door other;
  ASSERT_EQ(open(&producer), 0);
  EXPECT_EQ(open(&other), -EBUSY);
  std::vector<dp_door> observers(DoorServer::kMaxClients - 2);
  for (dp_door& observer : observers) ASSERT_EQ(open(&observer, DP_ROLE_OBSERVER), 0);
  EXPECT_EQ(open(&other, DP_ROLE_OBSERVER), -EBUSY);
  EXPECT_EQ(open(&other), -EBUSY) << "and is told, though every place but one is taken";
  EXPECT_EQ(server_->state().producer, getpid());
  EXPECT_EQ(server_->state().observers, observers.size());
  for (dp_door& observer : observers) dp_door_close(&observer);
  dp_door_close(&producer);
  ASSERT_TRUE(eventually([&] { return server_->state().producer == 0 && server_->state().observers == 0; }));
  EXPECT_EQ(open(&other), 0);
  // The server counts who came after it has answered.
  EXPECT_TRUE(eventually([&] { return server_->state().producers_seen == 2; }));
  dp_door_close(&other);
}

TEST_F(DoorServerTest, AnotherVersionHearsWhichOneThisIs) {
  const int fd = connect_raw();
  dp_message hello = dp_message_of(DP_MESSAGE_HELLO);
  hello.version = DP_ABI_VERSION + 1;
  hello.role = DP_ROLE_PRODUCER;
  ASSERT_EQ(dp_send(fd, &hello, -1), 0);
  dp_message answer;
  int fds[3];
  ASSERT_EQ(dp_receive(fd, &answer, fds), 0);
  EXPECT_EQ(answer.status, DP_DOOR_VERSION);
  EXPECT_EQ(answer.version, DP_ABI_VERSION);
  EXPECT_EQ(fds[0], -1);
  EXPECT_EQ(dp_receive(fd, &answer, fds), -EPIPE);
  close(fd);
}

TEST_F(DoorServerTest, WhoSendsAnythingElseIsDropped) {
  dp_message good = dp_message_of(DP_MESSAGE_HELLO);
  good.role = DP_ROLE_PRODUCER;
  std::vector<std::string> packets{"", "x", std::string(1000, 'x'), std::string(sizeof good, '\0')};
  for (const auto change : std::initializer_list<void (*)(dp_message&)>{
           [](dp_message& m) { m.magic = 0; }, [](dp_message& m) { m.kind = 99; },
           [](dp_message& m) { m.kind = DP_MESSAGE_CANCEL; },
           [](dp_message& m) { m.kind = DP_MESSAGE_MEMORY; }}) {
    dp_message bad = good;
    change(bad);
    packets.emplace_back(reinterpret_cast<const char*>(&bad), sizeof bad);
  }
  for (const std::string& packet : packets) {
    const int fd = connect_raw();
    ASSERT_EQ(send(fd, packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
    char answer;
    EXPECT_EQ(recv(fd, &answer, 1, 0), 0) << packet.size();
    close(fd);
  }
  const int fd = connect_raw();
  good.role = 7;
  dp_message answer;
  int fds[3];
  ASSERT_EQ(dp_send(fd, &good, -1), 0);
  ASSERT_EQ(dp_receive(fd, &answer, fds), 0);
  EXPECT_EQ(answer.status, DP_DOOR_INVALID);
  close(fd);
  EXPECT_GE(server_->state().refused, packets.size());
  dp_door door;
  EXPECT_EQ(open(&door), 0) << "nothing of it stays";
  dp_door_close(&door);
}

TEST_F(DoorServerTest, MemoryOfTheProducerIsMappedWhenItCannotShrink) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  const int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(sealed, 8192), 0);
  ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  uint32_t geometry = DP_NONE;
  int rc = -1;
  std::thread producer([&] { rc = dp_door_offer_memory(&door, sealed, 8192, 5, &geometry); });
  DoorServer::Offer offer;
  ASSERT_TRUE(eventually([&] { return server_->take_offer(&offer); }));
  EXPECT_EQ(offer.tag, 5u);
  std::shared_ptr<Arena> arena;
  ASSERT_TRUE(Arena::map("theirs", offer.fd.get(), offer.bytes, ArenaKind::kHost, &arena).ok());
  arena->base()[8191] = std::byte{9};
  uint8_t byte = 0;
  EXPECT_EQ(pread(sealed, &byte, 1, 8191), 1);
  EXPECT_EQ(byte, 9);
  server_->answer(5, DP_DOOR_OK, 3);
  producer.join();
  EXPECT_EQ(rc, 0);
  EXPECT_EQ(geometry, 3u);
  for (const size_t bytes : {size_t{0}, size_t{8193}, Arena::kMaxBytes + 1}) {
    EXPECT_STREQ(Arena::map("theirs", sealed, bytes, ArenaKind::kHost, &arena).code, "INVALID_ARGUMENT");
  }
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 8192), 0);
  EXPECT_STREQ(Arena::map("theirs", unsealed, 8192, ArenaKind::kHost, &arena).code, "INVALID_ARGUMENT");
  EXPECT_STREQ(Arena::map("theirs", -1, 8192, ArenaKind::kHost, &arena).code, "INVALID_ARGUMENT");
  EXPECT_EQ(dp_door_offer_memory(&door, sealed, Arena::kMaxBytes + 1, 6, &geometry), -EINVAL);
  close(sealed);
  close(unsealed);
  dp_door_close(&door);
}

TEST_F(DoorServerTest, MoreOffersThanItKeepsAreRefused) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  const int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  dp_message offer = dp_message_of(DP_MESSAGE_MEMORY);
  offer.bytes = 1;
  for (size_t i = 0; i < DoorServer::kMaxOffers + 1; i++) {
    offer.tag = static_cast<uint32_t>(i);
    ASSERT_EQ(dp_send(door.connection, &offer, fd), 0);
  }
  dp_message answer;
  int fds[3];
  ASSERT_EQ(dp_receive(door.connection, &answer, fds), 0);
  EXPECT_EQ(answer.status, DP_DOOR_FULL);
  EXPECT_EQ(answer.tag, DoorServer::kMaxOffers);
  dp_door_close(&door);
  ASSERT_TRUE(eventually([&] { return server_->state().producer == 0; }));
  DoorServer::Offer left;
  EXPECT_FALSE(server_->take_offer(&left)) << "they go with who made them";
  close(fd);
}

TEST_F(DoorServerTest, ABellThatItsHolderHasFilledHoldsNobodyUp) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  const uint64_t full = UINT64_MAX - 1;
  for (const int bell : {door.completion_bell, door.submission_bell}) {
    ASSERT_EQ(write(bell, &full, sizeof full), static_cast<ssize_t>(sizeof full));
    ASSERT_EQ(fcntl(bell, F_SETFL, fcntl(bell, F_GETFL) & ~O_NONBLOCK), 0);  // both processes' from now on
  }
  for (uint32_t i = 1; i <= 20; i++) {
    const dp_descriptor d = dp_describe(DP_OP_NOP, (i << 16) | 1, i);
    door.header->completion.sleeping = 1;
    dp_ring_index& ring = door.header->submission;
    dp_descriptor& entry = door.descriptors[ring.tail & (door.submission_entries - 1)];
    entry = d;
    entry.flags = DP_FLAG_END;
    std::atomic_ref<uint32_t>(ring.tail).store(ring.tail + 1);
    reactor_->ring();  // our own bell is full
    dp_record record;
    ASSERT_TRUE(eventually([&] { return dp_door_poll(&door, &record) == 1; }));
    ASSERT_EQ(record.tag, i);
  }
  dp_door_close(&door);
}

TEST_F(DoorServerTest, ItsEndIsSeenByWhoWaits) {
  dp_door door;
  ASSERT_EQ(open(&door), 0);
  std::thread host([&] {
    usleep(5000);
    server_->stop();
  });
  dp_record record;
  EXPECT_EQ(dp_door_wait(&door, &record, 20'000), -EPIPE);
  host.join();
  server_->stop();
  dp_door_close(&door);
}

}  // namespace
}  // namespace dualpath::test
