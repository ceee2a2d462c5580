// Each system call of a save and of a load fails in turn: every rank gets a data_error or none
// does, nothing hangs, no descriptor stays open, the checkpoint is the old one or the new one,
// whole, and the model is as it was.
//
// Compiled alone: it defines calls of the C library for the whole program.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::TemporaryFolder;

namespace {

/// What happens to the nth of the calls below.
struct Fault {
  int code = 0;           ///< errno; 0 if the call only reads or writes a part
  bool for_good = false;  ///< to all calls after it, too
  /// A change of names takes effect and is reported as failed, as when a network file system has
  /// repeated it. Other calls do not fail, but that all later questions for a file do if `blind`.
  bool takes_effect = false;
  bool blind = false;
};

Fault fault;
std::atomic<long> nth = 0;  // 0 for no fault
std::atomic<long> calls = 0;

/// Whether a signal may interrupt the call. The standard library lists folders by openat.
bool waits(std::string_view call) {
  for (const char* one : {"stat", "fstat", "mkdir", "rename", "remove", "openat"})
    if (call == one) return false;
  return true;
}

bool changes_names(std::string_view call) {
  return call == "mkdir" || call == "rename" || call == "remove";
}

bool fails(std::string_view call) {
  if (nth == 0 || (fault.code == EINTR && !waits(call))) return false;
  if (fault.takes_effect && !changes_names(call))
    return fault.blind && call == "stat" && calls >= nth;
  const long number = ++calls;
  return number == nth || (fault.for_good && number > nth);
}

/// -1 with errno, or the result of the system call.
template <class... Arguments>
long call_or_fail(std::string_view name, long number, Arguments... arguments) {
  if (fault.code != 0 && fails(name)) {
    if (fault.takes_effect && changes_names(name)) ::syscall(number, arguments...);
    errno = fault.code;
    return -1;
  }
  return ::syscall(number, arguments...);
}

/// The bytes that a call moves: fewer than asked for, if that is the fault.
std::size_t moved(std::string_view name, std::size_t bytes) {
  return fault.code == 0 && bytes > 1 && fails(name) ? bytes / 2 : bytes;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return static_cast<int>(call_or_fail("open", SYS_openat, AT_FDCWD, path, flags, mode));
}
int close(int file) {
  const int result = static_cast<int>(::syscall(SYS_close, file));
  return call_or_fail("close", SYS_getpid) < 0 ? -1 : result;  // it is closed nevertheless
}
ssize_t pread(int file, void* to, std::size_t bytes, off_t offset) {
  return call_or_fail("pread", SYS_pread64, file, to, moved("pread", bytes), offset);
}
ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t offset) {
  return call_or_fail("pwrite", SYS_pwrite64, file, from, moved("pwrite", bytes), offset);
}
int fsync(int) {  // which would take most of the time
  return static_cast<int>(call_or_fail("fsync", SYS_getpid)) < 0 ? -1 : 0;
}
int posix_fallocate(int file, off_t offset, off_t bytes) {
  const long result = call_or_fail("posix_fallocate", SYS_fallocate, file, 0, offset, bytes);
  return result == 0 ? 0 : errno;
}
int ftruncate(int file, off_t bytes) noexcept {
  return static_cast<int>(call_or_fail("ftruncate", SYS_ftruncate, file, bytes));
}
int fstat(int file, struct stat* to) noexcept {
  return static_cast<int>(call_or_fail("fstat", SYS_fstat, file, to));
}
int stat(const char* path, struct stat* to) noexcept {
  return static_cast<int>(call_or_fail("stat", SYS_newfstatat, AT_FDCWD, path, to, 0));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(call_or_fail("mkdir", SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(call_or_fail("rename", SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int remove(const char* path) noexcept {
  return static_cast<int>(call_or_fail("remove", SYS_unlinkat, AT_FDCWD, path, 0));
}
int openat(int folder, const char* path, int flags, ...) {
  return static_cast<int>(call_or_fail("openat", SYS_openat, folder, path, flags, 0));
}

}  // extern "C"

namespace {

struct Mlp : Sequential<ColumnParallelLinear<6, 10>, RowParallelLinear<10, 4>> {};
using Trained = Model<Mlp, Context<float, Reference, ThreadCommunicator>>;

std::vector<std::string> open_files() {
  std::vector<std::string> files;
  for (int file = 0; file < 256; ++file)
    if (::fcntl(file, F_GETFD) >= 0) files.push_back(std::to_string(file));
  return files;
}

/// The number of ranks that got a data_error of f(rank); any other error leaves.
template <class F>
int refused(int size, F&& f) {
  std::atomic<int> count = 0;
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    try {
      f(ranks);
    } catch (const data_error&) {
      ++count;
    }
  });
  return count;
}

void save(ThreadCommunicator& ranks, const CheckpointFolder& folder, std::uint64_t step,
          std::uint64_t seed, std::uint64_t most) {
  Trained model(ranks, Seed{seed});
  Optimizer optimizer(model, Sgd{.momentum = 0.9});
  model.set_step(step + 1);
  const std::vector<float> before(model.values().begin(), model.values().end());
  const auto check = [&] {
    CHECK(std::vector<float>(model.values().begin(), model.values().end()) == before);
    CHECK(model.step() == step + 1);
  };
  try {
    folder.save(model, optimizer, {}, {.max_shard_bytes = most});
  } catch (const data_error&) {
    check();
    throw;
  }
  check();
}

/// The seed of the run that a folder has, by its newest checkpoint; each number of it is compared.
std::uint64_t seed_in(const CheckpointFolder& folder) {
  std::uint64_t seed = 0;
  run_ranks(1, [&](ThreadCommunicator& ranks) {
    Trained model(ranks, Seed{99});
    Optimizer optimizer(model, Sgd{.momentum = 0.9});
    if (!folder.load_newest(model, optimizer)) return;
    Trained same(ranks, model.run().seed);
    CHECK(std::equal(model.values().begin(), model.values().end(), same.values().begin()));
    if (ranks.rank() == 0) seed = model.run().seed.value;
  });
  return seed;
}

constexpr std::uint64_t whole = UINT64_MAX, cut = 500;  // of max_shard_bytes: one file, several

struct Case {
  int size;
  std::uint64_t old_most, new_most;  // 0: there is no old checkpoint, nor its folder
  std::uint64_t step;                // of the new checkpoint; that of the old one is 1
};

/// Lets `call` make its nth system call in vain. Returns whether there was one.
template <class F>
bool with_fault(long number, F&& call) {
  const auto before = open_files();
  calls = 0;
  nth = number;
  call();
  nth = 0;
  CHECK(open_files() == before);
  return calls >= number;
}

bool save_with(const Case& one, long number) {
  CAPTURE(one.size);
  CAPTURE(one.old_most);
  CAPTURE(one.new_most);
  CAPTURE(one.step);
  CAPTURE(fault.code);
  CAPTURE(fault.for_good);
  CAPTURE(number);
  const TemporaryFolder temporary("shardwise_calls");
  const CheckpointFolder folder(temporary.path() / "runs/run/", {.keep = 1});
  const std::uint64_t old_seed = one.old_most > 0 ? 11 : 0;
  if (old_seed > 0)
    REQUIRE(refused(1, [&](auto& ranks) { save(ranks, folder, 1, 11, one.old_most); }) == 0);
  int errors = 0;
  const bool reached = with_fault(number, [&] {
    errors =
        refused(one.size, [&](auto& ranks) { save(ranks, folder, one.step, 22, one.new_most); });
  });
  CHECK((errors == 0 || errors == one.size));
  const bool is_repaired = fault.takes_effect && !fault.blind;
  if (fault.code == EINTR || fault.code == 0 || is_repaired) CHECK(errors == 0);
  const std::uint64_t seed = seed_in(folder);
  CHECK((seed == 22 || (seed == old_seed && errors > 0)));
  if (errors == 0) return reached;
  // The next save finds its way, whatever the one before has left.
  CHECK(refused(1, [&](auto& ranks) { save(ranks, folder, one.step, 33, one.new_most); }) == 0);
  CHECK(seed_in(folder) == 33);
  return reached;
}

/// The same for a load of the checkpoint at `path`, which is that of the seed 11.
bool load_with(int size, const CheckpointFolder& folder, long number) {
  CAPTURE(size);
  CAPTURE(fault.code);
  CAPTURE(number);
  int errors = 0;
  const bool reached = with_fault(number, [&] {
    errors = refused(size, [&](ThreadCommunicator& ranks) {
      Trained model(ranks, Seed{99});
      Trained loaded(ranks, Seed{11});
      Optimizer optimizer(model, Sgd{.momentum = 0.9});
      const std::vector<float> before(model.values().begin(), model.values().end());
      try {
        load_checkpoint(folder.path_after(1), model, optimizer);
      } catch (const data_error&) {
        CHECK(std::equal(before.begin(), before.end(), model.values().begin()));
        CHECK(model.step() == 1);
        throw;
      }
      CHECK(std::equal(model.values().begin(), model.values().end(), loaded.values().begin()));
    });
  });
  CHECK((errors == 0 || errors == size));
  if (fault.code == EINTR || fault.code == 0) CHECK(errors == 0);
  return reached;
}

/// Calls `with(number)` with the next number until there is no such call; returns how many there
/// were.
template <class F>
long each_call(F&& with) {
  long number = 1;
  while (with(number)) ++number;
  return number - 1;
}

}  // namespace

TEST_CASE("each system call of a save fails in turn") {
  long failed = 0;
  const auto fail_each = [&](const Fault& what, const Case& one) {
    fault = what;
    failed += each_call([&](long number) { return save_with(one, number); });
  };
  for (const std::uint64_t old_most : {whole, cut})
    for (const std::uint64_t new_most : {whole, cut}) fail_each({EIO}, {1, old_most, new_most, 1});
  for (const Fault& what : {Fault{ENOSPC, true}, Fault{EINVAL}, Fault{EINTR}, Fault{}})
    fail_each(what, {1, whole, cut, 1});
  for (const std::uint64_t old_most : {whole, cut})
    for (const std::uint64_t new_most : {whole, cut})
      for (const Fault& what :
           {Fault{ENOENT, false, true}, Fault{EIO, false, true}, Fault{EIO, false, true, true}})
        fail_each(what, {1, old_most, new_most, 1});
  for (const Fault& what : {Fault{EIO}, Fault{EEXIST, false, true}})
    fail_each(what, {1, 0, whole, 1});  // into new folders
  fail_each({EIO}, {3, whole, cut, 1});
  fail_each({EIO}, {3, cut, whole, 2});
  CAPTURE(failed);
  CHECK(failed > 300);
}

TEST_CASE("each system call of a load fails in turn") {
  long failed = 0;
  for (const int size : {1, 3})
    for (const std::uint64_t most : {whole, cut}) {
      const TemporaryFolder temporary("shardwise_calls");
      const CheckpointFolder folder(temporary.path(), {});
      REQUIRE(refused(1, [&](auto& ranks) { save(ranks, folder, 1, 11, most); }) == 0);
      for (const Fault& one : {Fault{EIO}, Fault{EINTR}, Fault{}}) {
        fault = one;
        failed += each_call([&](long number) { return load_with(size, folder, number); });
      }
    }
  CAPTURE(failed);
  CHECK(failed > 100);
}
