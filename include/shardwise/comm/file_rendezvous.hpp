#pragma once
// Ranks that meet in a folder that all of them see.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/greeting.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

/// For a path that ends in `meet`, rank 3 puts its card into the file `meet.3`, in one step, and
/// waits for those of the others; then it says so in `meet.3.seen`. Rank 0 waits for all of these
/// and removes all files.
///
/// The token tells the files of this job from those that an earlier one left behind, which are
/// passed over; so it must be another one for every start of a job. On a network's file system a
/// file may be seen late, by the seconds for which it remembers names.
class FileRendezvous {
 public:
  /// throws  argument_error if there is no token, or it is too long; if `rank` is none of `size`
  FileRendezvous(std::filesystem::path path, int rank, int size, RendezvousOptions options)
      : path_(std::move(path)), party_("FileRendezvous", rank, size, std::move(options)) {
    if (party_.options().token.empty())
      throw argument_error(
          "FileRendezvous: no token is given, so a file of an earlier job would pass for one of "
          "this; give all ranks one that no other job has, in SHARDWISE_TOKEN");
  }

  ///@{
  /// As `Rendezvous` says.
  int rank() const { return party_.rank(); }
  int size() const { return party_.size(); }
  ///@}

  /// throws  peer_error after the time-out, naming the ranks that have not come
  ///         data_error if a file cannot be written or read
  std::vector<Card> meet(const Card& mine) {
    const auto until = std::chrono::steady_clock::now() + party_.options().timeout;
    const detail::Greeting greeting(party_, mine);
    put(file_of(rank()), greeting);
    std::vector<Card> all = wait_for("", "has not come", until);
    put(seen_by(rank()), greeting);
    if (rank() == 0) {
      wait_for(".seen", "has not seen all cards", until);
      for (int r = 0; r < size(); ++r) {
        detail::remove_file(file_of(r));
        detail::remove_file(seen_by(r));
      }
    }
    return all;
  }

 private:
  static constexpr const char* kind = "rendezvous file";

  std::filesystem::path file_of(int rank) const {
    return path_.string() + '.' + std::to_string(rank);
  }
  std::filesystem::path seen_by(int rank) const { return file_of(rank).string() + ".seen"; }

  static void put(const std::filesystem::path& path, const detail::Greeting& greeting) {
    const std::string unfinished = path.string() + ".tmp" + std::to_string(::getpid());
    detail::File::create(unfinished, kind).write(0, greeting.bytes);
    detail::rename_file(unfinished, path, kind);
  }

  /// The greeting in a file, unless it is not there or of another length.
  static std::optional<detail::Greeting> read(const std::filesystem::path& path) {
    std::error_code absent;
    if (std::filesystem::file_size(path, absent) != detail::Greeting::length) return std::nullopt;
    detail::Greeting greeting;
    detail::File::open(path, kind).read(0, greeting.bytes);
    return greeting;
  }

  /// The cards in the files of all ranks whose name ends in `ending`.
  std::vector<Card> wait_for(const char* ending, const char* complaint,
                             std::chrono::steady_clock::time_point until) const {
    std::vector<Card> cards(static_cast<std::size_t>(size()));
    std::vector<int> missing(cards.size());
    for (int r = 0; r < size(); ++r) missing[static_cast<std::size_t>(r)] = r;
    auto pause = std::chrono::milliseconds(1);
    while (true) {
      std::erase_if(missing, [&](int r) { return take(r, ending, cards); });
      if (missing.empty()) return cards;
      if (std::chrono::steady_clock::now() >= until) give_up(missing, ending, complaint);
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
  }

  bool take(int rank, const char* ending, std::vector<Card>& cards) const {
    const std::optional<detail::Greeting> found = read(file_of(rank).string() + ending);
    if (!found || found->verdict(party_) != detail::Verdict::welcome || found->rank() != rank)
      return false;
    cards[static_cast<std::size_t>(rank)] = found->card();
    return true;
  }

  [[noreturn]] void give_up(const std::vector<int>& missing, const char* ending,
                            const char* complaint) const {
    std::string strange;
    for (const int r : missing) {
      const std::string name = file_of(r).string() + ending;
      if (!std::filesystem::exists(name)) continue;
      const std::optional<detail::Greeting> found = read(name);
      const detail::Verdict verdict = found ? found->verdict(party_) : detail::Verdict::no_greeting;
      strange += "; the file " + name + " is there, but who wrote it " + detail::meaning(verdict);
    }
    throw peer_error("rendezvous at " + path_.string() + ", rank " + std::to_string(rank()) +
                     " of " + std::to_string(size()) + ": after " +
                     std::to_string(party_.options().timeout.count()) + " ms, rank " +
                     detail::list_of(missing) + ' ' + complaint + strange +
                     ". Do all ranks run, with the same path and token, and see this folder?");
  }

  std::filesystem::path path_;
  detail::Party party_;
};

static_assert(Rendezvous<FileRendezvous>);

}  // namespace shardwise
