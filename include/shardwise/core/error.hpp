#pragma once
// What went wrong, one type for each kind of mistake.
//
// A message says what, why and what to do. Where it happened (rank, layer, collective) is put in
// front of it while the exception travels outwards, so a call that succeeds pays nothing for it.

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/core/sentence.hpp"
#include "shardwise/version.hpp"

namespace shardwise {

/// Base of every error that the library throws.
class error : public std::exception {
 public:
  /// What is wrong, why, and what to do.
  [[gnu::noinline, gnu::cold]] explicit error(std::string_view message) : what_(message) {}
  /// The same in pieces: {"rank ", 2, " of ", size}.
  explicit error(std::initializer_list<detail::Piece> message) : what_(detail::sentence(message)) {}

  /// The message, behind the places that were added.
  const char* what() const noexcept override { return what_.c_str(); }

  /// Puts a place in front: `rank 2`, then `Mlp / 3: Relu`, gives "rank 2: Mlp / 3: Relu: ...".
  /// The first place that is added is the innermost one and is followed by ": "; the next ones
  /// choose their own separator.
  [[gnu::noinline, gnu::cold]] void add_place(std::string_view place,
                                              std::string_view separator = ": ") {
    what_.insert(0, has_place_ ? separator : ": ").insert(0, place);
    has_place_ = true;
  }

 private:
  std::string what_;
  bool has_place_ = false;
};

/// Extents that do not meet. The message holds both shapes.
class shape_error : public error {
 public:
  using error::error;
};

/// An argument outside its range: a rank count of zero, a root that is no rank, a label too large.
class argument_error : public error {
 public:
  using error::error;
};

/// Ranks called different collectives, or the same one with other counts, dtypes or roots.
class collective_error : public error {
 public:
  using error::error;
};

/// Another rank threw or left while this one waited for it.
class peer_error : public error {
 public:
  using error::error;
};

/// A value that is no number where one is needed: the loss, or the layer that made it so.
class numeric_error : public error {
 public:
  using error::error;
};

/// A file that is missing, cut short, or not what its header says.
class data_error : public error {
 public:
  using error::error;
};

/// Memory that could not be had. The message holds the bytes that were asked for.
class memory_error : public error {
 public:
  using error::error;
};

/// A computing library refused a call. The message names library, call and status.
class backend_error : public error {
 public:
  using error::error;
};

/// An exception that is not ours, carried out of a rank; `cause()` is the exception itself.
class rank_error : public error {
 public:
  /// `message` is what the cause said, or what is known of it.
  rank_error(int rank, std::exception_ptr cause, const std::string& message)
      : error({"rank ", rank, ": ", message}), rank_(rank), cause_(std::move(cause)) {}

  /// The rank that threw it.
  int rank() const noexcept { return rank_; }
  /// What it threw, to be rethrown or looked at.
  const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  int rank_;
  std::exception_ptr cause_;
};

}  // namespace shardwise
