#pragma once
// A rendezvous in a folder that all ranks can read and write.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/hello.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

/// For a path that ends in `meet`, rank 3 writes its payload into the file `meet.3`, together with
/// a random number, which is new for each meeting. When the files of all ranks are there, rank 0
/// writes what they hold into `meet.all`. Rank 3 checks that its own random number is in
/// `meet.all`: so the payloads belong to this meeting and not to an earlier one. Then it removes
/// `meet.3` and writes `meet.3.seen`. Rank 0 waits for these files of all ranks and removes them
/// and `meet.all`. Each file is written under another name and then renamed. A rank whose time-out
/// passes removes its own file.
///
/// The same ranks may meet several times at one path. The token distinguishes their files from
/// those that a killed job has left behind, which are ignored. So every start of a job needs a new
/// token, and every restart too. Use TcpRendezvous where a launcher restarts ranks with the same
/// token, as torchrun does (`--max-restarts`). The token is written into the files without
/// encryption.
///
/// Two processes with the same rank overwrite each other's files: one of them, or both, fail by the
/// time-out as if other ranks were missing. On a network file system a file may become visible some
/// seconds late, because names are cached.
class FileRendezvous {
 public:
  /// throws  argument_error if the token is empty or too long, or if `rank` is not below `size`
  FileRendezvous(std::filesystem::path path, int rank, int size, RendezvousOptions options)
      : path_(std::move(path)), self_("FileRendezvous", rank, size, std::move(options)) {
    if (self_.options().token.empty())
      throw argument_error(
          "FileRendezvous: no token is given, so a file of an earlier job would pass for one of "
          "this; give all ranks one that no other job has, in SHARDWISE_TOKEN");
  }

  ///@{
  /// As `Rendezvous` says.
  int rank() const { return self_.rank(); }
  int size() const { return self_.size(); }
  ///@}

  /// throws  peer_error after the time-out, naming the ranks that have not come
  ///         data_error if a file cannot be written
  std::vector<RendezvousPayload> meet(const RendezvousPayload& mine) {
    const auto until = Clock::now() + self_.options().timeout;
    const Entry own{detail::Hello(self_, mine), new_number()};
    const std::vector<Entry> all = rank() == 0 ? collect(own, until) : wait_for_all(own, until);
    std::vector<RendezvousPayload> payloads;
    payloads.reserve(all.size());
    for (const Entry& entry : all) payloads.push_back(entry.hello.payload());
    return payloads;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Number = std::array<std::byte, 8>;

  /// The entry of a rank in its files; `meet.all` holds the entries of all ranks in rank order.
  struct Entry {
    detail::Hello hello{};
    Number number{};

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  static_assert(sizeof(Entry) == detail::Hello::length + sizeof(Number));

  struct RemovedAtEnd {
    std::vector<std::filesystem::path> files;
    ~RemovedAtEnd() {
      for (const std::filesystem::path& file : files) detail::remove_file(file);
    }
  };

  static Number new_number() {
    std::random_device source;
    Number number{};
    detail::put_number(number, source());
    detail::put_number(std::span(number).subspan(4), source());
    return number;
  }

  std::filesystem::path file_of(int rank) const {
    return path_.string() + '.' + std::to_string(rank);
  }
  std::filesystem::path seen_by(int rank) const { return file_of(rank).string() + ".seen"; }
  std::filesystem::path file_of_all() const { return path_.string() + ".all"; }

  static void put(const std::filesystem::path& path, const std::vector<Entry>& entries) {
    constexpr const char* kind = "rendezvous file";
    const std::string unfinished = path.string() + ".tmp" + std::to_string(::getpid());
    detail::File::create(unfinished, kind).write(0, std::as_bytes(std::span(entries)));
    detail::rename_file(unfinished, path, kind);
  }

  /// Nothing if the file does not exist, is removed meanwhile, or has another length.
  static std::vector<Entry> read(const std::filesystem::path& path, int count) {
    std::vector<Entry> entries(static_cast<std::size_t>(count));
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(entries));
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file || file.peek() != std::ifstream::traits_type::eof()) return {};
    return entries;
  }

  /// Waits until done() is true; false if that did not happen in time.
  template <class F>
  static bool wait(Clock::time_point until, F&& done) {
    auto pause = std::chrono::milliseconds(1);
    while (!done()) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
    return true;
  }

  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) ranks.push_back(r);
    return ranks;
  }

  /// Whether the file holds the payload of that rank, which is then copied to `entry`.
  bool has_come(int rank, const std::filesystem::path& file, Entry& entry) const {
    const std::vector<Entry> found = read(file, 1);
    if (found.empty() || status_of(found) != detail::HelloStatus::accepted ||
        found[0].hello.rank() != rank)
      return false;
    entry = found[0];
    return true;
  }

  detail::HelloStatus status_of(const std::vector<Entry>& found) const {
    return found.empty() ? detail::HelloStatus::not_a_hello : found[0].hello.status(self_);
  }

  /// Rank 0's part of the meeting.
  std::vector<Entry> collect(const Entry& own, Clock::time_point until) const {
    RemovedAtEnd files{{file_of(0), file_of_all()}};
    for (const int r : others()) files.files.push_back(seen_by(r));
    put(file_of(0), {own});
    std::vector<Entry> all(static_cast<std::size_t>(size()), own);
    const auto entry_of = [&](int r) -> Entry& { return all[static_cast<std::size_t>(r)]; };
    std::vector<int> missing = others();
    if (!wait(until, [&] {
          std::erase_if(missing, [&](int r) { return has_come(r, file_of(r), entry_of(r)); });
          return missing.empty();
        }))
      give_up(absence(missing));

    put(file_of_all(), all);
    missing = others();
    if (!wait(until, [&] {
          std::erase_if(missing, [&](int r) {
            return read(seen_by(r), 1) == std::vector<Entry>{entry_of(r)};
          });
          return missing.empty();
        }))
      give_up("rank " + detail::list_of(missing) + " has not read the payloads of all ranks");
    return all;
  }

  /// The other ranks' part of the meeting.
  std::vector<Entry> wait_for_all(const Entry& own, Clock::time_point until) const {
    std::vector<Entry> all;
    {
      const RemovedAtEnd own_file{
          {file_of(rank())}};  // so that no rank finds it in the next meeting
      put(file_of(rank()), {own});
      if (!wait(until, [&] {
            all = read(file_of_all(), size());
            return !all.empty() && all[static_cast<std::size_t>(rank())] == own;
          })) {
        Entry ignored;
        std::vector<int> missing = others();
        std::erase_if(missing, [&](int r) {
          return has_come(r, file_of(r), ignored) || has_come(r, seen_by(r), ignored);
        });
        give_up(missing.empty() ? "all ranks have come, but rank 0 has not written their payloads"
                                : absence(missing));
      }
    }
    put(seen_by(rank()), {own});
    return all;
  }

  /// "rank 1 and 2 has not come", and why files that do exist were not accepted.
  std::string absence(const std::vector<int>& missing) const {
    std::string text = "rank " + detail::list_of(missing) + " has not come";
    for (const int r : missing) {
      const std::filesystem::path file = file_of(r);
      if (std::filesystem::exists(file))
        text += "; the file " + file.string() + " is there, but the process that wrote it " +
                detail::describe(status_of(read(file, 1)));
    }
    return text;
  }

  [[noreturn]] void give_up(const std::string& what) const {
    throw peer_error({"rendezvous at ", path_.string(), ", rank ", rank(), " of ", size(),
                      ": after ", self_.options().timeout.count(), " ms, ", what,
                      ". Does each rank run once, with this path and token, and see this folder?"});
  }

  std::filesystem::path path_;
  detail::Participant self_;
};

static_assert(Rendezvous<FileRendezvous>);

}  // namespace shardwise
