#pragma once
// The small headers that ranks send each other ahead of their calls, and the channel that they
// travel on.

#include <cstddef>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/quarrel.hpp"

namespace shardwise::detail::mpi {

/// What a rank tells the others about its next call in a group, in bytes without gaps.
struct Header {
  std::uint64_t number = 0;  ///< of the collective in its group, from 1; or one of the two below
  std::uint64_t elements = 0;
  std::uint64_t counts = 0;
  std::uint64_t counts_digest = 0;
  std::int32_t root = -1;
  std::int32_t tag = 0;
  std::int32_t dtype = 0;
  std::int16_t operation = 0;
  std::int16_t reduction = 0;

  static constexpr std::uint64_t goodbye = 0;  ///< its rank has left the group
  /// Its rank knows that another has left: it comes to no collective of the group any more.
  static constexpr std::uint64_t gives_up = UINT64_MAX;

  Header() = default;
  explicit Header(std::uint64_t which) : number(which) {}
  Header(std::uint64_t which, const Call& call)
      : number(which),
        elements(call.elements),
        counts(call.counts.size()),
        counts_digest(digest(call.counts)),
        root(call.root),
        tag(call.tag),
        dtype(static_cast<std::int32_t>(call.dtype)),
        operation(static_cast<std::int16_t>(call.operation)),
        reduction(static_cast<std::int16_t>(call.reduction)) {}

  bool is_goodbye() const { return number == goodbye; }
  bool has_call() const { return number != goodbye && number != gives_up; }
  friend bool operator==(const Header&, const Header&) = default;

  static constexpr int bytes = 48;
};
static_assert(sizeof(Header) == Header::bytes);

/// The channel of all groups of a job, from one rank of the job to another. Each group has two tags
/// of its own in it, so that what a group has left behind unread never reaches another one. For the
/// same reason its communicator is kept until MPI ends.
class Channel {
 public:
  explicit Channel(MPI_Comm job) : comm_(OwnComm::duplicate(job)), size_(comm_.size()) {
    comm_.keep();
    void* limit = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm(), MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
    numbers_ = (found != 0 ? *static_cast<const int*>(limit) : 32767) / 2 / size_;
  }

  MPI_Comm comm() const { return comm_.get(); }

  /// Waits for nobody.
  void say_goodbye(int rank, int tag) const {
    static const Header goodbye(Header::goodbye);
    say(goodbye, rank, tag);
  }
  /// The same for a rank that stays in its group.
  void say_it_gives_up(int rank, int tag) const {
    static const Header gives_up(Header::gives_up);
    say(gives_up, rank, tag);
  }

  /// A number, of which the two tags are made, for a group that this rank is the first of. No other
  /// group has it; after some hundred million groups (or 16383 / P, where MPI has few tags) the
  /// oldest come again.
  int number_of_next_group() {
    next_ = (next_ + 1) % numbers_;
    return next_ * size_ + comm_.rank();
  }

 private:
  /// `header` has to stay as long as MPI runs.
  void say(const Header& header, int rank, int tag) const {
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(&header, Header::bytes, MPI_BYTE, rank, tag, comm(), &sent);
    if (sent != MPI_REQUEST_NULL) MPI_Request_free(&sent);
  }

  OwnComm comm_;
  int size_;
  int numbers_ = 0;
  int next_ = -1;
};

}  // namespace shardwise::detail::mpi
