#pragma once
// The errors of the library, one type for each kind.
//
// A message says what is wrong, why, and what to do. In front of it stands where in the program the
// thread was when it made the error (model, layer, call), and the rank, which is added when the
// exception leaves it. A call that succeeds pays for neither.

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

/// Base of every error that the library throws. It begins with the locations of its thread.
class error : public std::exception {
 public:
  /// What is wrong, why, and what to do. Where there is no memory for it, the message is "out of
  /// memory": an error never becomes a std::bad_alloc.
  [[gnu::cold]] explicit error(std::string_view message) noexcept;
  /// The same in pieces: {"rank ", 2, " of ", size}.
  explicit error(std::initializer_list<detail::Piece> message) noexcept;

  /// The message, after the places that were added.
  const char* what() const noexcept override { return what_.c_str(); }

  /// Adds a place in front: `rank 2`, then `Mlp / 3: Relu`, gives "rank 2: Mlp / 3: Relu: ...". The
  /// first place is the innermost one and is followed by ": "; later ones choose their separator. A
  /// long place, such as the type of a model without a name, stands behind the message: "... (in
  /// Sequential<...>)". An empty one adds nothing. Without memory for it, the message stays as it
  /// is.
  [[gnu::cold]] void add_place(std::string_view place, std::string_view separator = ": ") noexcept;

 private:
  static constexpr const char* no_memory = "out of memory";
  static constexpr std::size_t longest_in_front = 80;  // letters

  [[gnu::cold]] void add_locations() noexcept;

  std::string what_;
  bool has_place_ = false;
};

/// Extents that do not match. The message has both shapes.
class shape_error : public error {
 public:
  using error::error;
};

/// An argument outside its range: a rank count of zero, a root that is not a rank, a label too
/// large.
class argument_error : public error {
 public:
  using error::error;
};

/// Ranks called different collectives, or the same one with different counts, dtypes or roots.
class collective_error : public error {
 public:
  using error::error;
};

/// Another rank threw, returned, or did not come in time, while this one waited for it.
class peer_error : public error {
 public:
  using error::error;
};

/// A value that is not finite: the loss, or the layer that first gave such a value.
class numeric_error : public error {
 public:
  using error::error;
};

/// A file that is missing, truncated, or different from its header.
class data_error : public error {
 public:
  using error::error;
};

/// Memory that could not be allocated. The message has the number of bytes.
class memory_error : public error {
 public:
  using error::error;
};

/// A call of a computing library failed. The message names library, call and status.
class backend_error : public error {
 public:
  using error::error;
};

/// An exception of another library or the program, from a rank; `cause()` is that exception.
class rank_error : public error {
 public:
  /// `message` is the text of the cause, or what is known of it.
  rank_error(int rank, std::exception_ptr cause, std::string_view message);

  /// The rank that threw it.
  int rank() const noexcept { return rank_; }
  /// The exception, to rethrow or inspect.
  const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  int rank_;
  std::exception_ptr cause_;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include "shardwise/core/location.hpp"

namespace shardwise {

[[gnu::noinline]] SHARDWISE_INLINE error::error(std::string_view message) noexcept
    : error(std::initializer_list<detail::Piece>{message}) {}

SHARDWISE_INLINE error::error(std::initializer_list<detail::Piece> message) noexcept
    : what_(detail::sentence_or(message, no_memory)) {
  add_locations();
}

SHARDWISE_INLINE void error::add_locations() noexcept try {
  for (const detail::Location* at = detail::current_location; at != nullptr; at = at->outer)
    add_place(at->text(), at->is_composition ? " / " : ": ");
} catch (...) {  // no memory for a text
}

[[gnu::noinline]] SHARDWISE_INLINE void error::add_place(std::string_view place,
                                                         std::string_view separator) noexcept {
  if (place.empty()) return;
  const bool is_long = place.size() > longest_in_front;
  std::string longer =
      is_long ? detail::sentence_or({what_, " (in ", place, ")"}, "")
              : detail::sentence_or({place, has_place_ ? separator : std::string_view(": "), what_},
                                    "");
  if (longer.empty()) return;
  what_ = std::move(longer);
  has_place_ = has_place_ || !is_long;
}

SHARDWISE_INLINE rank_error::rank_error(int rank, std::exception_ptr cause,
                                        std::string_view message)
    : error({"rank ", rank, ": ", message}), rank_(rank), cause_(std::move(cause)) {}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
