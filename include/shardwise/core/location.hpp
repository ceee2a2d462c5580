#pragma once
// Where in a program a thread is: in which model, in which of its parts, and in what that does.

#include <string>

#include "shardwise/core/compiled.hpp"

namespace shardwise::detail {

/// While it lives, this thread is there, inside of the locations that it entered before. An error
/// has all of them in front of its message from the moment when it is made, so a call that succeeds
/// makes no text, and no caller needs to catch an error for it.
class Location {
 public:
  static constexpr int no_number = -1;

  /// A model, or a part without a number.
  Location(std::string (*name)(), bool is_composition);
  Location(const Location&) = delete;
  Location& operator=(const Location&) = delete;
  ~Location();

  const Location* const outer;  ///< the location around it; null if there is none
  std::string (*const name)();  ///< of a model or a part; null for others
  const int number;             ///< of a part of a composition
  const bool is_composition;    ///< which has locations of its own inside

  /// As errors show it: "3: Relu".
  std::string text() const { return text_(*this); }

 protected:
  using Text = std::string (*)(const Location&);

  Location(Text text, int number, std::string (*name)(), bool is_composition);

 private:
  static std::string named(const Location& here) { return here.name(); }

  Text text_;
};

/// Where this thread is now; null outside of all locations.
inline constinit thread_local const Location* current_location = nullptr;

/// A location whose text `describe()` returns.
template <class Describe>
class DescribedLocation : public Location {
 public:
  explicit DescribedLocation(const Describe& describe)
      : Location(&described, no_number, nullptr, false), describe_(describe) {}

 private:
  static std::string described(const Location& here) {
    return static_cast<const DescribedLocation&>(here).describe_();
  }

  Describe describe_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

[[gnu::noinline]] SHARDWISE_INLINE Location::Location(std::string (*its_name)(), bool has_parts)
    : Location(&named, no_number, its_name, has_parts) {}

SHARDWISE_INLINE Location::Location(Text make_text, int its_number, std::string (*its_name)(),
                                    bool has_parts)
    : outer(current_location),
      name(its_name),
      number(its_number),
      is_composition(has_parts),
      text_(make_text) {
  current_location = this;
}

[[gnu::noinline]] SHARDWISE_INLINE Location::~Location() { current_location = outer; }

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
