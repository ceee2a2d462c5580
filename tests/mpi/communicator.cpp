// What is particular to ranks that are processes: adopting a communicator of MPI, what each level
// of checks sees, errors of MPI as exceptions, messages that do not wait, memory that is kept.

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/mpi_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/comm/timeout.hpp"
#include "support/count_allocations.hpp"
#include "support/mpi_ranks.hpp"

using namespace shardwise;
using testing::allocations;
using testing::World;

namespace {

using Counts = std::vector<std::size_t>;

Counts uneven(int ranks) {
  Counts counts(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < counts.size(); ++r) counts[r] = 700 * r;
  return counts;
}

/// Every operation, on data that fits into one message and on more. Returns what the calls
/// allocated.
template <class T>
std::size_t call_everything(MpiCommunicator& c) {
  const Counts counts = uneven(c.size());
  const std::size_t total = detail::total(counts);
  const std::size_t mine = counts[static_cast<std::size_t>(c.rank())];
  std::vector<T> all(total), block(mine);
  Counts exchanged(counts.size(), 30);
  std::vector<T> out(30 * counts.size()), in = out;
  const std::size_t before = allocations;
  for (const std::size_t n : {std::size_t{3}, out.size(), total}) {
    const std::span<T> part = std::span(n > out.size() ? all : out).first(n);
    c.template all_reduce<T>(part, part);
  }
  c.template all_gather<T>(block, all, counts);
  c.template reduce_scatter<T>(all, block, counts);
  c.template gather<T>(block, all, counts, 0);
  c.template scatter<T>(all, block, counts, 0);
  c.broadcast(std::span(all), c.size() - 1);
  c.template all_to_all<T>(in, exchanged, out, exchanged);
  if (c.size() > 1) {
    const int next = (c.rank() + 1) % c.size();
    const int previous = (c.rank() + c.size() - 1) % c.size();
    c.template send<T>(in, next);
    c.receive(std::span(out), previous);
  }
  c.barrier();
  {
    auto first = c.template begin_all_reduce<T>(out, out);
    auto second = c.template begin_reduce_scatter<T>(all, block, counts);
    first.finish();
    auto third = c.template begin_all_reduce<T>(in, in);
    second.finish();
    auto fourth = c.template begin_all_gather<T>(block, all, counts);
    third.finish();
    fourth.finish();
  }
  return allocations - before;
}

template <class T>
std::vector<T> random_values(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(uniform(random));
  return values;
}

/// Sums over thread ranks and over processes, bit by bit.
template <class T>
void check_same_bits_as_threads(std::size_t n) {
  const int size = World::get().size();
  std::vector<std::vector<T>> on_threads(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& threads) {
    std::vector<T> data = random_values<T>(threads.rank(), n);
    threads.all_reduce<T>(data, data);
    on_threads[static_cast<std::size_t>(threads.rank())] = data;
  });
  testing::run_on_ranks(size, [&](MpiCommunicator& ranks) {
    std::vector<T> data = random_values<T>(ranks.rank(), n);
    ranks.all_reduce<T>(data, data);
    CHECK(std::memcmp(data.data(), on_threads[0].data(), n * sizeof(T)) == 0);
  });
}

}  // namespace

TEST_CASE("sums have the bits that thread ranks get, in one message and in several") {
  for (const std::size_t n : {std::size_t{100}, std::size_t{5001}}) {
    check_same_bits_as_threads<float>(n);
    check_same_bits_as_threads<double>(n);
    check_same_bits_as_threads<bf16>(n);
    check_same_bits_as_threads<fp16>(n);
  }
}

TEST_CASE(
    "a communicator of the caller's is adopted: its order of ranks, and none of its messages") {
  MPI_Comm reversed = MPI_COMM_NULL;
  const int rank = World::get().rank();
  const int size = World::get().size();
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  {
    MpiCommunicator ranks(reversed);
    CHECK(ranks.rank() == size - 1 - rank);
    int from_before = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&from_before, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, reversed, &request);
    call_everything<float>(ranks);
    const int partner = (ranks.rank() + 1) % size;
    MPI_Send(&rank, 1, MPI_INT, partner, 0, reversed);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(from_before == (rank + 1) % size);
  }
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;  // that of the caller's stays
  MPI_Comm_get_errhandler(reversed, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&reversed);
}

TEST_CASE_TEMPLATE("what is under way has the bits of what is made at once", T, float, bf16) {
  for (const std::size_t piece : {std::size_t{1} << 30, std::size_t{100}}) {
    MpiCommunicator ranks(MPI_COMM_WORLD, {.largest_piece = piece});
    MpiCommunicator others = ranks.split(ranks.rank() % 2, 0);
    const Counts counts = uneven(ranks.size());
    const std::size_t total = detail::total(counts);
    const std::size_t mine = counts[static_cast<std::size_t>(ranks.rank())];
    std::vector<std::vector<T>> sums, expected;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, total, std::size_t{3000}})
      sums.push_back(random_values<T>(ranks.rank() + static_cast<int>(sums.size()), n));
    expected = sums;
    for (std::vector<T>& one : expected) ranks.all_reduce<T>(one, one);
    const std::vector<T> in = sums[2];
    std::vector<T> block(mine), blocks(total), expected_blocks(total);
    ranks.all_gather<T>(std::span(in).first(mine), expected_blocks, counts);

    std::vector<decltype(ranks.begin_all_reduce<T>(sums[0], sums[0]))> under_way;
    for (std::vector<T>& one : sums) {
      under_way.push_back(ranks.begin_all_reduce<T>(one, one));
      others.barrier();  // a call of another group meanwhile
    }
    under_way.push_back(ranks.begin_reduce_scatter<T>(in, block, counts));
    under_way.push_back(ranks.begin_all_gather<T>(std::span(in).first(mine), blocks, counts));
    for (auto& one : under_way) one.progress();
    under_way[4].finish();
    under_way[0].finish();
    if (piece == 100) ranks.barrier();  // waits for the rest
    under_way.clear();
    const auto check_equal = [](const std::vector<T>& a, const T* b) {
      if (!a.empty()) CHECK(std::memcmp(a.data(), b, a.size() * sizeof(T)) == 0);
    };
    for (std::size_t i = 0; i < sums.size(); ++i) check_equal(sums[i], expected[i].data());
    check_equal(block, expected[2].data() + detail::offset(counts, ranks.rank()));
    check_equal(blocks, expected_blocks.data());
  }
}

TEST_CASE("a sum goes on while its rank waits in another group") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)});
  if (World::get().lacks(2)) return;
  MpiCommunicator pair = ranks.split(ranks.rank() / 2, 0);
  std::vector<double> data(1 << 18, 1.0);  // more than MPI sends by itself
  auto sum = ranks.begin_all_reduce<double>(data, data);
  // Rank 0 waits for the sum before it calls what the others wait in.
  if (ranks.rank() == 0) sum.finish();
  pair.barrier();
  sum.finish();
  CHECK(data.front() == ranks.size());
  CHECK(data.back() == ranks.size());
}

TEST_CASE("who waits patiently has no time-out") {
  if (World::get().lacks(2)) return;
  for (const CheckLevel checks : {CheckLevel::communicating, CheckLevel::off}) {
    MpiCommunicator ranks = patiently([&] {  // which waits for the others, too
      return MpiCommunicator(MPI_COMM_WORLD,
                             {.checks = checks, .timeout = std::chrono::milliseconds(20)});
    });
    std::array<int, 1> prompt{};
    if (ranks.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      prompt[0] = 7;
    }
    patiently([&] { ranks.broadcast<int>(prompt, 0); });
    CHECK(prompt[0] == 7);
    if (ranks.rank() == 0) ranks.send<int>(prompt, 1);
    if (ranks.rank() == 1) patiently([&] { ranks.receive<int>(prompt, 0); });
    patiently([&] { ranks.barrier(); });
  }
}

TEST_CASE("who waits patiently leaves the core to others: it looks once in a millisecond") {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  int looks = 0;
  const auto end = Clock::now() + 200ms;
  const auto has_ended = [&] {
    ++looks;
    return Clock::now() >= end;
  };
  const detail::mpi::MessageWait wait{.timeout = 1ms};
  patiently([&] {
    detail::mpi::poll_until(
        has_ended, [] { return std::vector<int>{0}; }, wait);
  });
  CHECK(looks <= 1000 + 200 + 2);  // fewer if the machine is busy
}

TEST_CASE("MPI that runs already is used and not ended") {
  int calls = 0;
  for (int i = 0; i < 2; ++i)
    run_mpi_ranks(World::get().size(), [&](MpiCommunicator& ranks) {
      ranks.barrier();
      ++calls;
    });
  CHECK(calls == 2);
  int ended = 1;
  MPI_Finalized(&ended);
  CHECK(ended == 0);
}

TEST_CASE("a mesh of processes has groups that differ along one axis, and is described") {
  const int size = World::get().size();
  const int contexts = size % 3 == 0 ? 3 : 1;
  const int datas = size % 2 == 0 ? 2 : 1;
  const int tensors = size / contexts / datas;
  int ended = 0;
  const mesh sizes{.data = datas, .context = contexts, .tensor = mesh::rest};
  run_mpi_mesh(sizes, [&](MeshRanks<MpiCommunicator>& ranks) {
    CHECK(ranks.sizes() == mesh{.data = datas, .context = contexts, .tensor = tensors});
    const int rank = ranks.rank();
    const auto begin_and_step = {
        std::tuple(MeshAxis::data, rank % (contexts * tensors), contexts * tensors, datas),
        std::tuple(MeshAxis::context, rank - rank / tensors % contexts * tensors, tensors,
                   contexts),
        std::tuple(MeshAxis::tensor, rank / tensors * tensors, 1, tensors)};
    for (const auto& [axis, begin, step, count] : begin_and_step) {
      std::vector<int> expected;
      for (int i = 0; i < count; ++i) expected.push_back(begin + i * step);
      CHECK(gathered(ranks.along(axis), rank) == expected);
      call_everything<float>(ranks.along(axis));
    }
    call_everything<double>(ranks);
    CHECK(describe(ranks).find(" on 1 machine\n") != std::string::npos);
    const std::string two_a_machine = describe(ranks, "node" + std::to_string(rank / 2));
    CHECK(two_a_machine.find("node0 0") != std::string::npos);
    CHECK((two_a_machine.find("warning") != std::string::npos) ==
          (tensors > 2 || (tensors == 2 && size % 2 == 1)));
    ++ended;
  });
  CHECK(ended == 1);
}

TEST_CASE("a process with another mesh is told on every rank, and ranks may go on") {
  MpiCommunicator ranks(MPI_COMM_WORLD);
  const int last = ranks.size() - 1;
  const mesh sizes{.data = ranks.rank() == last ? 1 : 2, .tensor = mesh::rest};
  if (last > 0)
    CHECK_THROWS_WITH_AS(MeshRanks(ranks, sizes),
                         doctest::Contains(std::string(" rank " + std::to_string(last) +
                                                       " has tensor=*; give all ranks the same")
                                               .c_str()),
                         collective_error);
  CHECK_THROWS_WITH_AS(MeshRanks(ranks, {.data = ranks.size() + 1}),
                       doctest::Contains("but the number of ranks is"), argument_error);
  ranks.barrier();
}

TEST_CASE("what cannot be adopted is refused") {
  CHECK_THROWS_AS(MpiCommunicator(MPI_COMM_NULL), argument_error);
  CHECK_THROWS_AS(MpiCommunicator(MPI_COMM_WORLD, {.largest_piece = 0}), argument_error);
  CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, {.largest_piece = std::size_t{INT_MAX} + 1}),
                       "MpiCommunicator: largest_piece is 2147483648; it must be 1 to 2147483647",
                       argument_error);
}

TEST_CASE("what a rank can see alone is refused before anything is sent") {
  testing::run_on_ranks(World::get().size(), [](MpiCommunicator& c) {
    const auto ranks = static_cast<std::size_t>(c.size());
    std::vector<float> data(4 * ranks), block(4);
    CHECK_THROWS_AS(c.all_reduce<float>(data, std::span(block).first(3)), shape_error);
    CHECK_THROWS_AS(c.all_gather<float>(block, data, Counts(ranks, 5)), shape_error);
    CHECK_THROWS_AS(c.all_gather<float>(block, data, Counts(ranks + 1, 4)), shape_error);
    CHECK_THROWS_AS(c.reduce_scatter<float>(data, block, Counts(ranks, 3)), shape_error);
    CHECK_THROWS_AS(c.reduce_scatter<float>(data, std::span(data).first(4), Counts(ranks, 4)),
                    argument_error);
    CHECK_THROWS_AS(c.broadcast(std::span(data), c.size()), argument_error);
    CHECK_THROWS_AS(c.gather<float>(block, data, Counts(ranks, 4), -1), argument_error);
    CHECK_THROWS_AS(c.scatter<float>(data, block, Counts(ranks, 5), 0), shape_error);
    CHECK_THROWS_AS(c.all_to_all<float>(data, Counts(ranks, 5), block, Counts(ranks, 4)),
                    shape_error);
    CHECK_THROWS_AS(c.send(std::span<const float>(data), c.rank()), argument_error);
    CHECK_THROWS_AS(c.receive(std::span(data), c.size()), argument_error);
    CHECK_THROWS_AS(static_cast<void>(c.begin_all_reduce<float>(data, std::span(block).first(3))),
                    shape_error);
    CHECK_THROWS_AS(static_cast<void>(c.begin_all_gather<float>(block, data, Counts(ranks, 5))),
                    shape_error);
    CHECK_THROWS_AS(static_cast<void>(c.begin_reduce_scatter<float>(data, std::span(data).first(4),
                                                                    Counts(ranks, 4))),
                    argument_error);
    c.barrier();
  });
}

TEST_CASE("without checks, what MPI refuses is an exception with MPI's words") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.checks = CheckLevel::off});
  std::vector<float> data(4);
  try {
    ranks.send(std::span<const float>(data), 99);
    CHECK(false);
  } catch (const backend_error& error) {
    CAPTURE(error.what());
    CHECK(std::string(error.what()).starts_with("MPI: MPI_Isend failed with code "));
    CHECK(std::string(error.what()).find("rank") != std::string::npos);
  }
  call_everything<float>(ranks);
}

TEST_CASE("a message of another length is an error at every level") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.checks = CheckLevel::off});
  std::vector<float> data(4);
  const std::vector<std::uint8_t> bytes(9);
  if (ranks.size() > 1 && ranks.rank() == 0) {
    ranks.send(std::span<const float>(data), 1);
    ranks.send(std::span(bytes), 1);
    ranks.send(std::span<const float>(data), 1);
  }
  if (ranks.rank() == 1) {
    CHECK_THROWS_AS(ranks.receive(std::span(data).first(2), 0), collective_error);
    CHECK_THROWS_AS(ranks.receive(std::span(data), 0), collective_error);
    data.resize(9);
    CHECK_THROWS_AS(ranks.receive(std::span(data), 0), collective_error);
  }
  ranks.barrier();
}

TEST_CASE("a block that is longer than its receiver expects is an error there, if MPI sees it") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.checks = CheckLevel::local});
  if (World::get().lacks(2)) return;
  const Counts none(static_cast<std::size_t>(ranks.size()));
  Counts sent = none, received = none;
  if (ranks.rank() == 0) sent[1] = 3;
  if (ranks.rank() == 1) received[0] = 2;
  const std::vector<float> in(detail::total(sent));
  std::vector<float> room(8);  // some MPIs write the whole block before they say what is wrong
  const std::span<float> out = std::span(room).first(detail::total(received));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // MPICH 4.0 asks it
  if (ranks.rank() == 1)
    CHECK_THROWS_WITH_AS(ranks.all_to_all<float>(in, sent, out, received),
                         doctest::Contains("Ranks gave different counts; with checks at the level "
                                           "`communicating`, both calls are named"),
                         collective_error);
  else
    ranks.all_to_all<float>(in, sent, out, received);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

TEST_CASE("each rank that does not come is named once, in order") {
  std::array<std::byte, 4> out{};
  std::array<MPI_Request, 4> requests{};
  for (std::size_t i = 0; i < out.size(); ++i)
    MPI_Irecv(&out[i], 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[i]);
  CHECK(detail::mpi::missing_partners(requests, std::array{2, 1, 2, 0}) == std::vector{0, 1, 2});
  for (MPI_Request& request : requests) {
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  CHECK(detail::mpi::missing_partners(requests, std::array{2, 1, 2, 0}).empty());
}

TEST_CASE("sending does not wait, however long the message, and in how many pieces it goes") {
  MpiCommunicator c(MPI_COMM_WORLD, {.largest_piece = 400'000});
  if (World::get().lacks(2)) return;
  const int next = (c.rank() + 1) % c.size();
  const int previous = (c.rank() + c.size() - 1) % c.size();
  std::vector<std::int32_t> data(1 << 20);
  for (int i = 0; i < 3; ++i) {
    data.assign(data.size(), 10 * c.rank() + i);
    data.back() += 100;
    c.send(std::span<const std::int32_t>(data), next);
    data.assign(data.size(), -1);  // ours again
  }
  for (int i = 0; i < 3; ++i) {
    c.receive(std::span(data), previous);
    CHECK(data.front() == 10 * previous + i);
    CHECK(data.back() == 10 * previous + i + 100);
  }
}

TEST_CASE("what nobody receives does not hold a rank back") {
  MpiCommunicator ranks(MPI_COMM_WORLD);
  const std::vector<float> large(1 << 20), small(8);
  if (ranks.size() > 1 && ranks.rank() == 0) {
    ranks.send(std::span(small), 1);
    ranks.send(std::span(large), 1);
  }
}

TEST_CASE("nothing of ours is allocated after the first calls") {
  for (const CheckLevel level : {CheckLevel::off, CheckLevel::local, CheckLevel::communicating}) {
    CAPTURE(static_cast<int>(level));
    MpiCommunicator ranks(MPI_COMM_WORLD, {.checks = level});
    for (int round = 0; round < 3; ++round) {
      call_everything<float>(ranks);
      call_everything<bf16>(ranks);
    }
    CHECK(call_everything<float>(ranks) == 0);
    CHECK(call_everything<bf16>(ranks) == 0);
  }
}
